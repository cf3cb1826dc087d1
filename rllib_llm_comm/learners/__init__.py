"""Learners and their losses."""
