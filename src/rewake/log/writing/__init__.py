"""The writer of a log as a machine, and what a host owes to it."""
