"""Checkpoints on disk: stage records, signatures, finding and loading. No Ray."""
