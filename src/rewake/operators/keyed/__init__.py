"""Keyed processing: a function of the user's over each key's tuples and state."""
