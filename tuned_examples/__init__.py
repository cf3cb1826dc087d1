"""Experiment files for `rllib train file`, every key commented; `rllib example list` shows them."""
