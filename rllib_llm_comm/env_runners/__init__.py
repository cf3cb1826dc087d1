"""EnvRunners that play many games in compiled arrays."""
