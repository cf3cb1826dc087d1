"""RLlib callbacks."""
