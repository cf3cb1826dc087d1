"""People at the table: a game in a browser, with trained agents in the other seats."""
