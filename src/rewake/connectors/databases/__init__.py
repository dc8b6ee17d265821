"""Databases: lookups, and tables as the end of a stream."""
