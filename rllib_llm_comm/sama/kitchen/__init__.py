"""The onion-soup kitchens as stages prepare them for planning: states, steps, words for actions, recorded code."""
