"""What the frame of a self-contained turn says of its batch.

Beside the footprints of continuous eventual checkpointing (OPENS, CHECKS, CLOSED, METADATA of
output 0) every frame has

- BATCH: the identity of the batch, as the host gave it;
- METADATA of output 1: a `BatchMark`, one column of 64-bit integers in the order of its fields;
- with the way INPUT, if there are rows, what `self_contained_rows` makes of them.

What always holds in a log: sequences rise by one, and a batch starts where the one before ended.
Whatever is in the bytes, reading them raises `DamagedFrame` or `DamagedLog` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.errors import DamagedFrame, DamagedLog
from rewake.model.stream_event import NO_TIME

# How a batch is in the log: its rows; the state it led to and its results; or that state alone,
# of which the results follow (running windows).
INPUT_WAY, CHECKS_WAY, CURRENT_WAY = range(3)
WAY_NAMES = ("input", "checks", "checks")

MARK_OUTPUT = 1
_LARGEST = 2**62


class BatchMark(NamedTuple):
    """What a frame says of its batch.

    Its tuples are the `rows` positions from `position` on; it covers the positions from `start`.
    The first `touched` CHECKS are of the parts it changed, where results follow from them.  To
    repeat it takes the newest `repeat_frames` frames, this one included.  `columns` tells rows
    stored by one operator from those stored by another.
    """

    way: int
    start: int
    position: int
    rows: int
    watermark: int
    touched: int
    emitted: int
    repeat_frames: int
    columns: int

    def section(self) -> Section:
        """The section that holds it; a watermark of `NO_TIME` is none."""
        payload = pack_columns([np.array(self, np.int64)])
        return Section(SectionKind.METADATA, payload, MARK_OUTPUT)

    @property
    def end(self) -> int:
        """The position after the last tuple."""
        return self.position + self.rows

    @classmethod
    def of(cls, frame: Frame) -> BatchMark:
        """Read a frame's, and check it against what else the frame says."""
        payload = frame.section(SectionKind.METADATA, MARK_OUTPUT)
        columns = [] if payload is None else unpack_columns(payload)
        if (
            len(columns) != 1
            or columns[0].dtype != np.int64
            or columns[0].size != len(cls._fields)
            or frame.section(SectionKind.BATCH) is None
        ):
            raise DamagedFrame(
                f"frame {frame.sequence} is none of a self-contained log: the log was written "
                "under another approach"
            )
        mark = cls(*columns[0].tolist())
        numbers = mark._replace(watermark=0)
        possible = all(0 <= number < _LARGEST for number in numbers)
        if (
            not possible
            or mark.way > CURRENT_WAY
            or mark.start > mark.position
            or mark.end != frame.t_end + 1
            or not 1 <= mark.repeat_frames <= frame.sequence + 1
        ):
            raise DamagedFrame(f"frame {frame.sequence} says impossible things of its batch")
        return mark


class MarkedFrame(NamedTuple):
    """A frame of a self-contained log, with what it says of its batch."""

    frame: Frame
    mark: BatchMark

    @property
    def identity(self) -> bytes:
        """The identity of the batch."""
        payload = self.frame.section(SectionKind.BATCH)
        assert payload is not None, "a mark is only read where there is an identity"
        return bytes(payload)

    @property
    def bytes(self) -> int:
        """The size of its sections."""
        return sum(len(section.payload) for section in self.frame.sections)

    @property
    def input_bytes(self) -> int:
        """The size of its rows as they are stored."""
        return len(self.frame.section(SectionKind.INPUT) or b"")


def marked(frames: Iterable[Frame]) -> Iterator[MarkedFrame]:
    """Frames given newest first, each checked to be what the one after it was written behind."""
    newer: MarkedFrame | None = None
    for frame in frames:
        mark = BatchMark.of(frame)
        if newer is not None and (
            frame.sequence + 1 != newer.frame.sequence or mark.end != newer.mark.start
        ):
            raise DamagedLog(
                f"frame {newer.frame.sequence} starts at input position {newer.mark.start}, but is "
                f"preceded by frame {frame.sequence}, which ends at {mark.end}: a frame is missing "
                "between them, or they are of two logs; restore the log",
                segment=frame.segment,
                offset=frame.offset,
                sequence=frame.sequence,
            )
        newer = MarkedFrame(frame, mark)
        yield newer


def watermark_of(mark: BatchMark) -> int | None:
    """The watermark behind a batch, or None."""
    return None if mark.watermark == NO_TIME else mark.watermark
