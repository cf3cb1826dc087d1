"""Commands in words, and those who give them by rules."""
