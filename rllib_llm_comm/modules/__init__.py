"""RLModules."""
