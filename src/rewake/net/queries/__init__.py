"""A query that runs: its coordinator, its processes, its copies."""
