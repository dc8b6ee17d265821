"""A server's process: one loop, one listener, one word with the coordinator, and its nodes."""
