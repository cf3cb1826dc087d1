"""RED: an officer of MiniRTS trained from demonstrations."""
