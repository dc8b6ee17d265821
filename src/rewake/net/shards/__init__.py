"""Shards of operators inside Spark's micro-batches: their hosts, and the tasks that ask them."""
