"""Base models, adapters, scoring and generation; knows nothing of RLlib or of games."""
