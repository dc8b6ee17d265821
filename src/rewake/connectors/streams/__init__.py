"""Streams of Rewake on disk: as a source, and committed to from outside."""
