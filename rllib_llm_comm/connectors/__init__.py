"""Connector pieces, one per file."""
