"""Session windows: tuples of a key that are closer than a gap belong together."""
