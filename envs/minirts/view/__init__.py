"""Views of the game: words, numbers and pictures."""
