"""Logs that need nobody upstream: CEC where no input can be asked for again."""
