"""Agents: language models, networks and policy folders; nothing here needs Ray."""
