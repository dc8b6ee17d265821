"""The real host of a node: its log, its sink, its connections, and what its recoveries take."""
