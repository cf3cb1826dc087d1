"""The systems that the papers compare with."""
