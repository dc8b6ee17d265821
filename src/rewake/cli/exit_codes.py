"""What the exit codes mean; scripts and schedulers rely on them, so they never change."""

from enum import IntEnum

from rewake.model.errors import RewakeError, UsageError
from rewake.spark.requirements import MissingRequirement


class ExitCode(IntEnum):
    """How a run of `rewake` ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    ENVIRONMENT = 3
    INVARIANT_VIOLATED = 4
    INTERRUPTED = 130


def exit_code_of(error: RewakeError) -> ExitCode:
    """Return the code that says whose fault the error is."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    if isinstance(error, MissingRequirement):
        return ExitCode.ENVIRONMENT
    return ExitCode.FAILURE
