"""Data sets of subgoals: what a planner wants in many states of a game, and what is added while agents train."""
