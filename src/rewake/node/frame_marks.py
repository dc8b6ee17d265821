"""Where the frames of a node's log end, so that those that nobody needs can be trimmed.

What always holds: a mark (end, sequence) says that all frames below `sequence` hold positions below
`end`.  Any of them may be forgotten: trimming becomes coarser, never wrong.  So there are at most
`MOST` of them, however long a consumer is gone.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

__all__ = ["MOST", "FrameMarks"]

MOST: Final = 1024


class FrameMarks:
    """Marks in the order of the log."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def last(self) -> int:
        """The sequence behind the last frame that is marked; -1 when none is."""
        return self._marks[-1][1] if self._marks else -1

    def put(self, end: int, sequence: int) -> None:
        """Frames below `sequence` end before position `end`."""
        self._marks.append((end, sequence))
        if len(self._marks) > MOST:
            self._marks = deque(islice(self._marks, 0, None, 2))

    def trimmable(self, needed: int, own_frames: int) -> int:
        """Below which sequence nobody needs a frame; consumers need positions from `needed` on.

        `own_frames`: the node's own recovery needs frames from there on.
        """
        before = 0
        # A watermark may stand alone right where somebody goes on: frames that end there stay.
        while self._marks and self._marks[0][0] < needed:
            before = self._marks[0][1]
            if before > own_frames:
                break
            self._marks.popleft()
        return min(before, own_frames)
