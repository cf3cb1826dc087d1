"""Replays of the golden episodes of each game, one file per game."""
