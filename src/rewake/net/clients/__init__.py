"""Clients of a running query: who reads a stream, and who produces into an entry."""
