"""Instant checkpoints: the whole state at once, every so often."""
