"""Workloads, the oracle, demonstrations and benchmarks: what drives Rewake and judges it."""
