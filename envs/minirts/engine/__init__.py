"""The game: compiled rules on flat records."""
