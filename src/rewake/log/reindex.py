"""Completing an index after a crash, by walking the frames it does not know.

Only for logs with one stripe: an entry's timestamp tells of all frames before it in the whole log,
and a stripe alone does not know those of the others.  Without an index a reader walks the segment,
which is slower and gives the same.
"""

from collections.abc import Iterator
from typing import Final

from rewake.log.files.index import INDEX_INTERVAL, IndexEntry, encode_entry, read_index
from rewake.log.files.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.log.reading.scan import Window, frames_in
from rewake.log.store import Store, publish
from rewake.model.errors import DamagedFrame

__all__ = ["complete_index"]

TOLERATED_BYTES: Final = 4 * INDEX_INTERVAL


def complete_index(
    store: Store,
    header: SegmentHeader,
    end: int,
    *,
    log_id: int,
    interval: int = INDEX_INTERVAL,
    tolerated: int = TOLERATED_BYTES,
) -> bool:
    """Give the segment a whole index if more than `tolerated` bytes lack one; True if it did."""
    window = Window(store, header.id, log_id=log_id, stop=end)
    entries = read_index(store, header.id, log_id=log_id, end=end)
    while entries and not _is_there(window, entries[-1]):
        entries.pop()
    start = entries[-1] if entries else _first(header)
    if end - start.offset <= tolerated:
        return False
    entries += _missing(window, start, interval)
    encoded = (encode_entry(entry, log_id=log_id, epoch=header.id.epoch) for entry in entries)
    publish(store, header.id.index_name, b"".join(encoded))
    return True


def _first(header: SegmentHeader) -> IndexEntry:
    sequence = header.id.first_sequence
    return IndexEntry(sequence, header.position, header.timestamp, SEGMENT_HEADER_SIZE)


def _is_there(window: Window, entry: IndexEntry) -> bool:
    try:
        return window.check(entry.offset).header.sequence == entry.sequence
    except DamagedFrame:
        return False


def _missing(window: Window, start: IndexEntry, interval: int) -> Iterator[IndexEntry]:
    indexed, timestamp = start.offset, start.timestamp
    try:
        for header, offset in frames_in(window, start.offset):
            if offset - indexed >= interval:
                yield IndexEntry(header.sequence, header.position, timestamp, offset)
                indexed = offset
            timestamp = max(timestamp, header.timestamp)
    except DamagedFrame:
        return  # whoever reads those frames will say so; an index is no place to
