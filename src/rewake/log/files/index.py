"""A sparse index of one segment: places where a reader may begin.

One entry per `INDEX_INTERVAL` bytes of segment:

    offset  size  field
         0     8  sequence   of the frame at `offset`
         8     8  position   of its first result tuple
        16     8  timestamp  the highest of all frames before it
        24     8  offset     of the frame in the segment
        32     4  zero
        36     4  crc        CRC-32C of log_id, epoch and bytes 0..35

The index is written unsynced and never trusted alone.  After a crash, entries may be missing, torn
or beyond the end of the segment; those are dropped here.  Whoever uses one checks that a frame with
that sequence is at that offset; without any entry, reading begins at the segment's start, which is
slower and gives the same.
"""

from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from rewake.log.files.layout import SegmentId
from rewake.log.store import Store

__all__ = ["ENTRY_SIZE", "INDEX_INTERVAL", "IndexEntry", "encode_entry", "read_index"]

INDEX_INTERVAL: Final = 512 << 10
MAX_INDEX_BYTES: Final = 16 << 20

_FIELDS: Final = Struct("<QQqQI")
_OWNER: Final = Struct("<QQ")
_CRC: Final = Struct("<I")
ENTRY_SIZE: Final = _FIELDS.size + _CRC.size
assert ENTRY_SIZE == 40


class IndexEntry(NamedTuple):
    """A place where a frame begins."""

    sequence: int
    position: int
    timestamp: int
    offset: int


def encode_entry(entry: IndexEntry, *, log_id: int, epoch: int) -> bytes:
    """The bytes of one entry."""
    fields = _FIELDS.pack(*entry, 0)
    return fields + _CRC.pack(crc32c(_OWNER.pack(log_id, epoch) + fields))


def read_index(store: Store, segment: SegmentId, *, log_id: int, end: int) -> list[IndexEntry]:
    """The usable entries for the bytes before `end`, in ascending order."""
    try:
        data = store.read(segment.index_name, 0, MAX_INDEX_BYTES)
    except FileNotFoundError:
        return []
    owner = _OWNER.pack(log_id, segment.epoch)
    entries: list[IndexEntry] = []
    for start in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        fields = data[start : start + _FIELDS.size]
        if _CRC.unpack_from(data, start + _FIELDS.size)[0] != crc32c(owner + fields):
            continue
        entry = IndexEntry(*_FIELDS.unpack(fields)[:4])
        ascending = not entries or entry.sequence > entries[-1].sequence
        if ascending and entry.offset < end:
            entries.append(entry)
    return entries
