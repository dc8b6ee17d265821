"""Errors are sorted by whose fault it is."""

import inspect

from rewake.model import errors


def test_every_error_belongs_to_one_family():
    """The caller's mistake, damaged data, or a fault of the surroundings."""
    families = (errors.UsageError, errors.DamagedData, errors.OperatingFault)
    # It only tells what a node said, whose fault that ever was.
    told = errors.QueryFailed
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if kind not in (errors.RewakeError, told, *families):
            assert sum(issubclass(kind, family) for family in families) == 1, kind


def test_a_damaged_log_says_where():
    """Segment, offset and the first frame that cannot be trusted."""
    error = errors.DamagedLog("broken", segment="a", offset=7, sequence=3)
    assert (error.segment, error.offset, error.sequence, str(error)) == ("a", 7, 3, "broken")
