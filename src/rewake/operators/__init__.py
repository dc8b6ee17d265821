"""Operators: whole stream events in and out, state in parts.  Pure, columnar, compiled."""
