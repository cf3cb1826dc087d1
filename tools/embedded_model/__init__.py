"""How the embedded base model is made: corpus, training and probes."""
