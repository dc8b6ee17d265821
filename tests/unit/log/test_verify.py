"""The report on a log, sound or not."""

import pytest
from log_vocabulary import sample_turn

from rewake.log.files.layout import DESCRIPTOR, MARK, segment_id
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.verify import verify
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits


@pytest.fixture(params=[1, 2], ids=["one stripe", "two stripes"])
def stores(request) -> list[MemoryStore]:
    stores = [MemoryStore() for _ in range(request.param)]
    Log.create(stores, "verified", log_id=5)
    for epoch in range(2):
        writer = DirectWriter(stores, limits=Limits(segment_bytes=600))
        for number in range(epoch * 10, epoch * 10 + 10):
            writer.append(sample_turn(number))
        writer.close()
    return stores


def test_a_sound_log_is_reported_whole(stores):
    """All frames, no torn bytes, no damage."""
    report = verify(stores)
    assert report.intact
    assert (report.frames, report.end_sequence, report.durable) == (20, 20, 20)
    assert report.bytes == sum(frame.length for frame in Log.open_reader(stores).frames())
    assert report.torn_bytes == 0
    assert report.descriptor is not None
    assert report.descriptor.name == "verified"


def test_a_torn_tail_is_counted_and_is_no_damage(stores):
    """Bytes behind the end."""
    newest = max((n for n in stores[0].names() if segment_id(n)), key=lambda name: name[-15:])
    stores[0].write(newest, stores[0].size(newest), [b"RWKF but no frame"])
    report = verify(stores)
    assert report.intact
    assert report.torn_bytes == 17


def test_damage_is_located_and_what_can_be_saved_is_counted(stores):
    """Frames before it, and whole frames after it."""
    victim = next(frame for frame in Log.open_reader(stores).frames() if frame.sequence == 3)
    for store in stores:
        data = store.read(victim.segment, victim.offset, 32)
        if int.from_bytes(data[24:32], "little") == 3:
            store.write(victim.segment, victim.offset + 90, [b"!"])
    report = verify(stores)
    assert not report.intact
    assert report.damage is not None
    assert (report.damage.segment, report.damage.offset) == (victim.segment, victim.offset)
    assert report.end_sequence == 3
    assert report.readable_after == 16


@pytest.mark.parametrize("name", [DESCRIPTOR, MARK, "floor", "segment"])
def test_no_damage_makes_it_raise(stores, name):
    """Whatever file is nonsense, the report says so, or that it does not matter."""
    store = stores[0]
    if name == "segment":
        name = sorted(n for n in store.names() if segment_id(n))[1]
    if name not in store.names():
        store.create(name, b"")
    store.truncate(name, 0)
    store.write(name, 0, [b"nonsense" * 400])
    report = verify(stores)
    assert not report.intact
    assert report.damage is not None
    assert report.damage.segment == name


def test_a_missing_segment_is_reported(stores):
    """The frames behind it are still counted."""
    victim = sorted(n for n in stores[0].names() if segment_id(n))[0]
    stores[0].delete(victim)
    report = verify(stores)
    assert not report.intact
    assert report.end_sequence == 0
    assert report.readable_after > 10
