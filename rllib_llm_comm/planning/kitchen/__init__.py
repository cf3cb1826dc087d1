"""Translation, reward agreement and subgoal data sets of the onion-soup kitchens."""
