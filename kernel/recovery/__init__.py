"""A start: what log and index say, what is left out behind lost frames, and the first frames of an epoch."""
