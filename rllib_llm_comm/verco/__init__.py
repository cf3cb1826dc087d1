"""Verco: agents that are language models and talk to each other."""
