"""Small games of teams on which value decomposition is tried. `python -m tools.team_games` plays them all."""
