"""Continuous eventual checkpointing (CEC): the output log is the checkpoint."""
