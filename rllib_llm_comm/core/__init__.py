"""What everything stands on: errors, files, places, registries; knows no Ray."""
