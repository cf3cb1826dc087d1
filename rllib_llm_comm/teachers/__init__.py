"""Sources of message labels: scripted and chat teachers, and label collection."""
