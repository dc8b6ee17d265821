"""What the frame of a self-contained turn says of its batch.

Beside the footprints of continuous eventual checkpointing (OPENS, CHECKS, CLOSED, METADATA of
output 0) every frame has

- BATCH: the identity of the batch, as the host gave it;
- METADATA of output 1: a `BatchMark`: the version of the format in a byte, then its fields in
  order, each as the number of its bytes and these, little-endian;
- with the way INPUT, if there are rows, what `rows` makes of them.

What always holds in a log: sequences rise by one, and a batch starts where the one before ended.
Whatever is in the bytes, reading them raises `DamagedFrame` or `DamagedLog` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.errors import DamagedFrame, DamagedLog
from rewake.model.stream_event import NO_TIME

# How a batch is in the log: its rows; the state it led to and its results; or that state alone,
# of which the results follow (running windows).
INPUT_WAY, CHECKS_WAY, CURRENT_WAY = range(3)
WAY_NAMES = ("input", "checks", "checks")

MARK_OUTPUT = 1
# Of the whole frame.  Version 1 began its mark with the two bytes 1, 0, and packed nothing.
FORMAT_VERSION = 2
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
        payload = bytes([FORMAT_VERSION])
        for number in self:
            size = number.bit_length() // 8 + 1
            payload += bytes([size]) + number.to_bytes(size, "little", signed=True)
        return Section(SectionKind.METADATA, payload, MARK_OUTPUT)

    @property
    def end(self) -> int:
        """The position after the last tuple."""
        return self.position + self.rows

    @classmethod
    def of(cls, frame: Frame) -> BatchMark:
        """Read a frame's, and check it against what else the frame says."""
        mark = cls(*_numbers(frame, len(cls._fields)))
        numbers = mark._replace(watermark=0)
        possible = all(0 <= number < _LARGEST for number in numbers)
        possible &= -_LARGEST <= mark.watermark // 2 < _LARGEST
        if (
            not possible
            or mark.way > CURRENT_WAY
            or mark.start > mark.position
            or mark.end != frame.t_end + 1
            or not 1 <= mark.repeat_frames <= frame.sequence + 1
        ):
            raise DamagedFrame(f"frame {frame.sequence} says impossible things of its batch")
        return mark


def _numbers(frame: Frame, count: int) -> list[int]:
    """The numbers of a frame's mark."""
    payload = bytes(frame.section(SectionKind.METADATA, MARK_OUTPUT) or b"")
    if not payload or frame.section(SectionKind.BATCH) is None:
        raise DamagedFrame(
            f"frame {frame.sequence} is none of a self-contained log: the log was written under "
            "another approach"
        )
    if payload[0] != FORMAT_VERSION:
        raise DamagedFrame(
            f"frame {frame.sequence} has version {payload[0]} of the format of self-contained "
            f"logs, but this program reads version {FORMAT_VERSION}: read the log with the program "
            "that wrote it, or start with a new folder"
        )
    numbers = []
    place = 1
    while place < len(payload):
        stop = place + 1 + payload[place]
        numbers.append(int.from_bytes(payload[place + 1 : stop], "little", signed=True))
        place = stop
    if place != len(payload) or len(numbers) != count:
        raise DamagedFrame(f"frame {frame.sequence} does not say all of its batch")
    return numbers


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
        sections = self.frame.sections
        return sum(len(each.payload) for each in sections if each.kind == SectionKind.INPUT)


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
