"""What several algorithms share on RLlib: PPO for many agents, connectors, env runners, checkpoints."""
