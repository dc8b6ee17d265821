"""Queries with loops, promises and amnesia, and what a run notes of them besides logs."""
