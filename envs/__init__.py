"""Games as PettingZoo environments, and their way into RLlib."""
