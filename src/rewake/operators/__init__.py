"""Operators: whole stream events in, whole stream events out, state in parts.  Pure and compiled."""
