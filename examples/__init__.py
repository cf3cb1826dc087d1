"""Runnable examples, one use of the package each; `rllib example list` shows them."""
