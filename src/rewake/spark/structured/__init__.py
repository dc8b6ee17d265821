"""Stateful operators inside Structured Streaming, hosted by Spark's own micro-batches.

    task        what a Spark task does for a shard and a batch
    aggregate   `rewake.aggregate`, the transform
    observe     figures of shards in Spark's progress
    metrics     the same as Prometheus metrics (needs `prometheus-client`)

What always holds: importing it needs no pyspark; tasks import no more than they need.
"""
