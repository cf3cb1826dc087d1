"""EMMA: agents that read their subgoal, trained by PPO."""
