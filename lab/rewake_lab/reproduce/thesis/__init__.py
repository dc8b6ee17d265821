"""Experiments of the thesis on persistent stream objects."""
