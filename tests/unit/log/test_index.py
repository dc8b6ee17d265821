"""The sparse index: entries that can be used, and an index that is made whole again."""

import pytest

from rewake.log.files.index import ENTRY_SIZE, IndexEntry, encode_entry, read_index
from rewake.log.files.layout import SegmentId
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.reading.chain import load_chains
from rewake.log.reindex import complete_index
from rewake.log.testing import sample_turn
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits

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


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_an_index_that_lost_its_end_is_completed(kept):
    """The same entries as the writer would have made: position, timestamp, offset."""
    store = MemoryStore()
    Log.create(store, "index", log_id=3)
    writer = DirectWriter(store, limits=Limits(index_interval=300))
    for number in range(30):
        writer.append(sample_turn(number))
    name = SEGMENT.index_name
    whole = read_index(store, SEGMENT, log_id=3, end=1 << 30)
    assert len(whole) > 5
    store.truncate(name, kept * ENTRY_SIZE)
    ((segment,),), _ = load_chains([store], log_id=3, floor=0)
    end = store.size(SEGMENT.name)
    how = {"log_id": 3, "interval": 300, "tolerated": 600}
    assert complete_index(store, segment.header, end, **how)
    assert read_index(store, SEGMENT, log_id=3, end=1 << 30) == whole
    assert not complete_index(store, segment.header, end, **how)
