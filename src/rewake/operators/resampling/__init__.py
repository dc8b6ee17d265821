"""Resample: values of one stream at the times of another (Hwang 2.2)."""
