"""The games that planners know."""
