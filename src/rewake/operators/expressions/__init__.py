"""Expressions over the columns of a stream event: SQL text, compiled to Arrow's kernels."""
