"""One module per group of verbs; ``makeway.main`` loads only the one that was asked for."""
