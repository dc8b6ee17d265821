"""Join: pairs of tuples of two streams that are near in event time (Hwang 2.2)."""
