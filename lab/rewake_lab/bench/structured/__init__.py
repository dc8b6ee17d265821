"""`rewake bench structured`: state inside Structured Streaming, ours beside Spark's own."""
