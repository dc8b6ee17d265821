"""Shards inside Spark's micro-batches: which batch is next, and of which history."""
