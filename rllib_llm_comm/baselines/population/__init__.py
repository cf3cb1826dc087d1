"""Self-play and populations: FCP, PBT, COLE."""
