"""Columns of stream events as arrays: values, keys, and what no 64 bits hold."""
