"""Making of the embedded base model: corpus, training and probes."""
