"""Checkpoints on disk: stage records, signatures and finding. No Ray."""
