"""SAMA: a language-model planner, and the agents that carry its subgoals out."""
