"""From where each input channel is needed again, to repeat the turns from some position on.

One mark per turn says how far every channel had been consumed before it.  Marks that lie before
what recovery would repeat are forgotten.  How far that reaches back is the approach's matter, and
may be very far: so the number of marks is bounded.  When there are too many, every second one goes.
What is asked for then is a little earlier than necessary, and never later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["MOST_MARKS", "Frontiers"]

MOST_MARKS: Final = 1024
_NO_CHANNEL: Final = -1


class _Mark(NamedTuple):
    """Before the turn at `start`; all positions up to the next mark are of `channel`, or of any."""

    start: int
    channel: int
    consumed: tuple[int, ...]


class Frontiers:
    """Marks of turns in order; never more than `MOST_MARKS`."""

    def __init__(self, channels: int) -> None:
        self._marks: deque[_Mark] = deque()
        # What was said before is true for ever, also when a mark has gone since.
        self._told = (0,) * channels

    def __len__(self) -> int:
        return len(self._marks)

    def note(self, start: int, channel: int | None, consumed: Sequence[int]) -> None:
        """A turn at `start` takes from a channel (None: from the clock), when so much was taken."""
        number = _NO_CHANNEL if channel is None else channel
        self._marks.append(_Mark(start, number, tuple(consumed)))
        if len(self._marks) > MOST_MARKS:
            kept = [each._replace(channel=_NO_CHANNEL) for each in self._marks]
            self._marks = deque(kept[::2])

    def needed(self, position: int) -> list[int] | None:
        """Per channel; None when no turn that was noted ends behind `position`.

        Positions only rise from call to call.
        """
        marks = self._marks
        while len(marks) > 1 and marks[1].start <= position:
            marks.popleft()
        if not marks:
            return None
        start, channel, consumed = marks[0]
        needed = list(consumed)
        if channel != _NO_CHANNEL:
            needed[channel] += max(0, position - start)
        self._told = tuple(map(max, self._told, needed))
        return list(self._told)

    def forget(self) -> None:
        """Nothing that was noted will be repeated."""
        self._marks.clear()
