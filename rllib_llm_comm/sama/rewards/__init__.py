"""Rewards for subgoals: exact tests, code in a sandbox, or a language model."""
