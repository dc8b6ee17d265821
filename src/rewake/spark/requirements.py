"""What Spark needs from the machine, and the error that says it is not there."""

from rewake.model.errors import OperatingFault


class MissingRequirement(OperatingFault):
    """Something Rewake needs is not installed or too old; the message says what to do."""
