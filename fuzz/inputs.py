"""What fuzzed inputs of several parts look like as bytes; any bytes at all are such an input.

Footprints: the operator's number u8, then frames, newest first:

    t_end i64, timestamp i64, open_windows u32, records u32, number of sections u8,
    per section: kind u8, size u16, payload

Edits: the log's number u8, then edits:

    file u8, action u8, offset u32, size u16, bytes

Bytes that end too early end the last part; numbers are taken modulo what there is.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from rewake.log.frame import Frame, Section, SectionKind, TurnRecord, decode_frame, encode_frame

__all__ = [
    "DELETE", "OVERWRITE", "RENAME", "REPAIR", "TRUNCATE", "Edit", "StoredFrame",
    "frames_of", "pack_edits", "pack_frames", "stored", "unpack_edits", "unpack_frames",
]  # fmt: skip

MAX_FRAMES: Final = 16
MAX_SECTIONS: Final = 8
MAX_EDITS: Final = 8

_FRAME: Final = Struct("<qqIIB")
_SECTION: Final = Struct("<BH")
_EDIT: Final = Struct("<BBIH")
_KINDS: Final = tuple(SectionKind)

# What an edit does to its file; `REPAIR` is added when checksums are made right afterwards.
OVERWRITE, TRUNCATE, DELETE, RENAME = range(4)
REPAIR: Final = 4


class StoredFrame(NamedTuple):
    """What hostile bytes can say in a frame whose checksum is right."""

    t_end: int
    timestamp: int
    open_windows: int
    records: int
    sections: tuple[tuple[SectionKind, bytes], ...]


class Edit(NamedTuple):
    """One change to one file of a log."""

    file: int
    action: int
    offset: int
    data: bytes


class _Taker:
    """Takes parts from the front of a buffer; whatever is missing is nothing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def byte(self) -> int:
        taken = self.bytes(1)
        return taken[0] if taken else 0

    def bytes(self, size: int) -> bytes:
        taken = self._data[self._place : self._place + size]
        self._place += size
        return taken

    def fields(self, layout: Struct) -> tuple[int, ...] | None:
        taken = self.bytes(layout.size)
        return layout.unpack(taken) if len(taken) == layout.size else None


def pack_frames(case: int, frames: Sequence[StoredFrame]) -> bytes:
    """The bytes of an input of footprints."""
    parts = [bytes([case])]
    for t_end, timestamp, open_windows, records, sections in frames:
        parts.append(_FRAME.pack(t_end, timestamp, open_windows, records, len(sections)))
        for kind, payload in sections:
            parts += (_SECTION.pack(kind, len(payload)), payload)
    return b"".join(parts)


def unpack_frames(data: bytes) -> tuple[int, list[StoredFrame]]:
    """The operator's number, and its frames."""
    taker = _Taker(data)
    case = taker.byte()
    frames: list[StoredFrame] = []
    while len(frames) < MAX_FRAMES and (fields := taker.fields(_FRAME)) is not None:
        t_end, timestamp, open_windows, records, count = fields
        sections = []
        for _ in range(count % MAX_SECTIONS):
            entry = taker.fields(_SECTION)
            if entry is None:
                break
            sections.append((_KINDS[(entry[0] - 1) % len(_KINDS)], taker.bytes(entry[1])))
        frames.append(StoredFrame(t_end, timestamp, open_windows, records, tuple(sections)))
    return case, frames


def stored(frame: Frame) -> StoredFrame:
    """What an honest frame says; None of its payloads may be longer than 64 KiB."""
    sections = tuple((section.kind, bytes(section.payload)) for section in frame.sections)
    return StoredFrame(frame.t_end, frame.timestamp, frame.open_windows, frame.records, sections)


def frames_of(parts: Sequence[StoredFrame]) -> list[Frame]:
    """Frames whose checksums are right, newest first."""
    frames = []
    for number, (t_end, timestamp, open_windows, records, payloads) in enumerate(parts):
        sections = [Section(kind, payload) for kind, payload in payloads]
        turn = TurnRecord(t_end, timestamp, open_windows, 0, records, sections)
        sequence = len(parts) - 1 - number
        encoded = encode_frame(turn, log_id=1, epoch=0, sequence=sequence, position=0, durable=0)
        frames.append(decode_frame(encoded))
    return frames


def pack_edits(case: int, edits: Sequence[Edit]) -> bytes:
    """The bytes of an input of edits."""
    parts = [bytes([case])]
    for file, action, offset, data in edits:
        parts += (_EDIT.pack(file, action, offset, len(data)), data)
    return b"".join(parts)


def unpack_edits(data: bytes) -> tuple[int, list[Edit]]:
    """The log's number, and what to change in it."""
    taker = _Taker(data)
    case = taker.byte()
    edits: list[Edit] = []
    while len(edits) < MAX_EDITS and (fields := taker.fields(_EDIT)) is not None:
        file, action, offset, size = fields
        edits.append(Edit(file, action % 8, offset, taker.bytes(size)))
    return case, edits
