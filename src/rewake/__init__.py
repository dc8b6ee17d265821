"""Rewake: stateful stream processing that survives failures at a price the user chooses."""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
