"""Programs of the developers: what makes the embedded model and records cassettes. Not a part of the wheel."""
