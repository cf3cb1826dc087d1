"""Language-model agents that talk, trained with Ray RLlib."""
