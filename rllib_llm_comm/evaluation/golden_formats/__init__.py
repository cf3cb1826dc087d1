"""How the golden episodes of each game are replayed, one file per game."""
