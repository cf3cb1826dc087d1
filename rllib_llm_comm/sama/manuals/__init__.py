"""Manuals of games, made from papers' LaTeX sources."""
