"""Policies from checkpoints, roll-outs, replays and checks."""
