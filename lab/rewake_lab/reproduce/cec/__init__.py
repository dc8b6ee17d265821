"""Experiments of "Continuous Eventual Checkpointing for Data Stream Processing Operators"."""
