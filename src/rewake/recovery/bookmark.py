"""Where a node goes on whose input is kept upstream: seven numbers, kept by the coordinator.

A bookmark speaks of two moments of the node's input.  At the later one (`position`, `watermark`)
the node had given output up to `output`, and every consumer has said that it needs nothing before
that.  From the earlier one (`start`) an empty operator becomes what the node's was at the later
one.  A moment is a position and how far time had come there: a watermark that stands alone has no
position of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rewake.log.files.layout import MAX_COUNT

__all__ = ["Bookmark", "Start", "bookmark_of"]

_LEAST, _BEYOND = -(2**63), 2**63


class Start(NamedTuple):
    """What was before a turn: input up to here was taken, and this is what its clocks showed."""

    position: int
    # Of the input, as it was told.
    watermark: int
    # Of the operator.
    clock: int


class Bookmark(NamedTuple):
    """From where a node goes on, and how."""

    position: int
    watermark: int
    # Where its output ends that was made of the input before `position`.
    output: int
    # How many tuples had come too late by then.
    late_tuples: int
    start: int
    start_watermark: int
    start_clock: int

    @classmethod
    def at(cls, now: Start, output: int, late_tuples: int, start: Start) -> Bookmark:
        """One of this moment, to be reached from that start."""
        return cls(now.position, now.watermark, output, late_tuples, *start)

    @property
    def begins(self) -> Start:
        """From where input is needed again."""
        return Start(self.start, self.start_watermark, self.start_clock)


_FIELDS: Final = len(Bookmark._fields)


def bookmark_of(written: Any) -> Bookmark:
    """The bookmark that was written as a list of numbers; a ValueError when it cannot be one."""
    if type(written) is not list or len(written) != _FIELDS:
        raise ValueError(f"not a bookmark of {_FIELDS} numbers")
    if any(type(each) is not int or not _LEAST <= each < _BEYOND for each in written):
        raise ValueError("a bookmark with numbers that are none of 64 bits")
    found = Bookmark(*written)
    counts = (found.position, found.output, found.late_tuples, found.start)
    if not all(0 <= each <= MAX_COUNT for each in counts):
        raise ValueError("a bookmark with positions that cannot be")
    if (found.start, found.start_watermark) > (found.position, found.watermark):
        raise ValueError("a bookmark that begins behind its end")
    return found
