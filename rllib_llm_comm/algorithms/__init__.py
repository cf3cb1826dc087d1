"""Algorithms: a config and an algorithm class each, and their registry."""
