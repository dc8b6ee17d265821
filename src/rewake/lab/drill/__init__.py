"""Drills: run a query, break it on purpose, and compare what came out with what should have."""
