"""Ways to bring an operator back after a crash, each a class that a host drives.

A host owes every approach the same three things, in this order: append what a turn records and wait
until it is durable before forwarding results; after a crash, rebuild from the log before anything
else; deliver input again from where the rebuilt operator says.
"""
