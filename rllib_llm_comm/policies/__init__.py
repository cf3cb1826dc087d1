"""Trained policies without Ray: settings, folders, loading, partners, publishing."""
