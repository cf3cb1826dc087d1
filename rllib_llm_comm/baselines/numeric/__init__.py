"""Agents without language: PPO, MAPPO, CommNet."""
