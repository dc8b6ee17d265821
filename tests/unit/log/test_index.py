"""The sparse index: entries that can be used, and an index that is made whole again."""

import pytest

from rewake.log.files.index import ENTRY_SIZE, IndexEntry, encode_entry, read_index
from rewake.log.files.layout import SegmentId
from rewake.log.memory import MemoryStore

SEGMENT = SegmentId(0, 0)
ENTRIES = [IndexEntry(10 * i, 30 * i, 100 * i - 5, 1000 * i + 88) for i in range(5)]


def store_with(data: bytes) -> MemoryStore:
    return MemoryStore.holding({SEGMENT.index_name: data})


def encoded(entries: list[IndexEntry]) -> bytes:
    return b"".join(encode_entry(entry, log_id=3, epoch=0) for entry in entries)


def test_entries_read_back_up_to_the_end():
    """Those beyond the end of the segment are dropped; so is a torn last one."""
    store = store_with(encoded(ENTRIES) + b"torn")
    assert read_index(store, SEGMENT, log_id=3, end=10_000) == ENTRIES
    assert read_index(store, SEGMENT, log_id=3, end=2088) == ENTRIES[:2]


@pytest.mark.parametrize("at", range(0, ENTRY_SIZE, 3))
def test_a_damaged_entry_is_dropped_alone(at):
    """The others are still good."""
    data = bytearray(encoded(ENTRIES))
    data[2 * ENTRY_SIZE + at] ^= 4
    found = read_index(store_with(bytes(data)), SEGMENT, log_id=3, end=10_000)
    assert found == ENTRIES[:2] + ENTRIES[3:]


def test_another_logs_or_epochs_entries_are_not_used():
    """The checksum covers whose they are."""
    store = store_with(encoded(ENTRIES))
    assert read_index(store, SEGMENT, log_id=4, end=10_000) == []
    assert read_index(store_with(b""), SEGMENT, log_id=3, end=10_000) == []
    assert read_index(MemoryStore(), SEGMENT, log_id=3, end=10_000) == []
