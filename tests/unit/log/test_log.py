"""Creating, claiming and opening; descriptors; refusing what is not as it should be."""

import pytest
from log_vocabulary import read_numbers, sample_turn

from rewake.log.files.claims import current_claim, owns
from rewake.log.files.descriptor import MAX_STRIPES, Descriptor, read_descriptor
from rewake.log.files.layout import DESCRIPTOR, MARK, SegmentId, claim_epoch, claim_name, segment_id
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits, Mode
from rewake.model.errors import (
    DamagedLog,
    Fenced,
    InvalidName,
    LogExists,
    LogInUse,
    NotALog,
    UnsupportedVersion,
    UsageError,
)


def new_log(stripes: int = 1) -> list[MemoryStore]:
    stores = [MemoryStore() for _ in range(stripes)]
    Log.create(stores, "log", log_id=33, metadata={"text": "ü", "bytes": bytes(range(256))})
    return stores


def test_a_descriptor_reads_back():
    """Text and bytes, and the number of stripes."""
    descriptor = read_descriptor(new_log(2))
    assert descriptor == Descriptor(33, "log", 2, {"text": "ü", "bytes": bytes(range(256))})


def test_an_empty_log_can_be_read():
    """Nobody ever wrote to it."""
    reader = Log.open_reader(new_log())
    assert (reader.first_sequence, reader.end_sequence, reader.end_position) == (0, 0, 0)
    assert list(reader.frames()) == list(reader.frames_backwards()) == reader.tail().poll() == []


def test_a_tail_of_an_empty_log_sees_the_first_frame():
    """From nothing to live."""
    stores = new_log(2)
    tail = Log.open_reader(stores).tail()
    assert tail.poll() == []
    DirectWriter(stores).append(sample_turn(0))
    assert [frame.sequence for frame in tail.poll()] == [0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "../x", "log_id": 1}, InvalidName),
        ({"name": "x", "log_id": 0}, UsageError),
        ({"name": "x", "log_id": 1 << 64}, UsageError),
    ],
)
def test_a_log_that_cannot_be_is_not_created(arguments, error):
    """Nothing is left behind."""
    store = MemoryStore()
    with pytest.raises(error):
        Log.create(store, **arguments)
    assert store.names() == []


def test_too_many_stripes_are_refused():
    """The mark has room for sixteen."""
    with pytest.raises(UsageError):
        Log.create([MemoryStore() for _ in range(MAX_STRIPES + 1)], "x", log_id=1)


def test_a_log_is_created_once():
    """LogExists, and LogInUse while somebody holds it."""
    (store,) = new_log()
    with pytest.raises(LogExists):
        Log.create(store, "again", log_id=34)
    other = store.attach()
    assert other.try_lock()
    with pytest.raises(LogInUse):
        Log.create(store, "again", log_id=34)


def test_a_newer_format_is_not_guessed_at():
    """UnsupportedVersion names both versions."""
    (store,) = new_log()
    store.write(DESCRIPTOR, 4, [b"\x02"])
    with pytest.raises(UnsupportedVersion, match="version 2; this program reads version 1"):
        Log.open_reader(store)


def test_a_missing_or_damaged_descriptor_is_told_apart():
    """NotALog and DamagedLog."""
    with pytest.raises(NotALog):
        Log.open_reader(MemoryStore())
    (store,) = new_log()
    store.truncate(DESCRIPTOR, 40)
    with pytest.raises(DamagedLog, match="descriptor"):
        Log.open_for_append(store)


def test_a_missing_mark_is_damage():
    """It was made before the log existed."""
    (store,) = new_log()
    store.delete(MARK)
    with pytest.raises(DamagedLog, match="mark is missing"):
        Log.open_reader(store)


def test_epochs_only_rise():
    """The next by default; an explicit one must be new."""
    (store,) = new_log()
    assert Log.open_for_append(store).epoch == 0
    assert Log.open_for_append(store, epoch=7).epoch == 7
    for stale in (0, 6, 7):
        with pytest.raises(Fenced, match="epoch 8 or higher"):
            Log.open_for_append(store, epoch=stale)
    assert Log.open_for_append(store).epoch == 8


def test_a_claim_says_who_holds_the_log_and_replaces_the_one_before():
    """One look at one file tells a writer whether it still owns the log."""
    (store,) = new_log()
    assert current_claim(store) == (-1, "nobody")
    Log.open_for_append(store, holder="one")
    assert current_claim(store) == (0, "one")
    assert owns(store, 0)
    Log.open_for_append(store, epoch=3, holder="two")
    assert current_claim(store) == (3, "two")
    assert owns(store, 3)
    assert not owns(store, 0)


def test_of_two_claimants_of_one_epoch_one_wins():
    """The exclusive creation of the claim decides."""
    (store,) = new_log()
    store.create(claim_name(5), b"the quicker one")
    with pytest.raises(Fenced):
        Log.open_for_append(store, epoch=5)


def test_names_sort_as_numbers_do():
    """And other names stand for nothing."""
    names = [SegmentId(sequence, epoch).name for sequence in (2, 10) for epoch in (9, 11)]
    assert names == sorted(names)
    assert [segment_id(name) for name in names] == [(2, 9), (2, 11), (10, 9), (10, 11)]
    assert claim_epoch(claim_name(12)) == 12
    for other in ("LOG", "segment-1-2.log", names[0] + ".tmp", "epoch-1", names[0][:-4] + ".idx"):
        assert segment_id(other) is None
        assert claim_epoch(other) is None


def test_drafts_left_by_a_crash_are_removed():
    """They were never published."""
    (store,) = new_log()
    store.create("segment-draft.log.tmp", b"half")
    Log.open_for_append(store)
    assert not [name for name in store.names() if name.endswith(".tmp")]


def filled(stripes: int = 1) -> list[MemoryStore]:
    stores = new_log(stripes)
    writer = DirectWriter(stores, limits=Limits(segment_bytes=600))
    for number in range(20):
        writer.append(sample_turn(number))
    writer.close()
    return stores


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_is_damage(which):
    """In the middle, at the beginning, or the last one, which the mark names."""
    (store,) = filled()
    segments = sorted(name for name in store.names() if segment_id(name))
    store.delete(segments[which])
    for open_log in (Log.open_reader, Log.open_for_append):
        with pytest.raises(DamagedLog, match="missing") as caught:
            open_log(store)
        assert caught.value.segment == segments[which]


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_that_is_too_short_is_damage(which):
    """Found without reading a frame."""
    (store,) = filled()
    segments = sorted(name for name in store.names() if segment_id(name))
    store.truncate(segments[which], store.size(segments[which]) - 8)
    with pytest.raises(DamagedLog, match="ends") as caught:
        Log.open_reader(store)
    assert caught.value.segment == segments[which]


def test_a_segment_of_another_log_is_damage():
    """A file copied from elsewhere under the right name."""
    (store,) = filled()
    other = MemoryStore()
    Log.create(other, "other", log_id=34)
    DirectWriter(other).append(sample_turn(0))
    name = next(name for name in other.names() if segment_id(name))
    store.truncate(name, 0)
    store.write(name, 0, [other.read(name, 0, 1 << 20)])
    with pytest.raises(DamagedLog, match="another log"):
        Log.open_reader(store)


def test_a_hole_below_what_later_frames_prove_durable_is_damage():
    """The mark is lost, but a later frame says what was durable when it was written."""
    (store,) = new_log()
    mark = store.read(MARK, 0, 1 << 20)
    writer = DirectWriter(store)
    frames = [writer.append(sample_turn(number)) for number in range(6)]
    store.write(MARK, 0, [mark[:2048]])
    assert len(read_numbers([store])) == len(frames)  # the last one is whole, and adopted
    segment = next(name for name in store.names() if segment_id(name))
    store.write(segment, 88 + 40, [b"????"])
    for open_log in (Log.open_reader, Log.open_for_append):
        with pytest.raises(DamagedLog, match="all frames below 5 were durable") as caught:
            open_log(store)
        assert (caught.value.segment, caught.value.offset) == (segment, 88)
        assert caught.value.sequence == 0


@pytest.mark.parametrize("mode", [Mode.STABLE, Mode.DELAYED])
def test_only_what_is_not_known_to_be_durable_is_read_from_the_medium(mode, monkeypatch):
    """The rest was synced: a log that is opened again may find it in the cache."""
    stores = new_log()
    writer = DirectWriter(stores, mode=mode)
    for number in range(5):
        writer.append(sample_turn(number))
    durable = writer.pipeline.durable.ends[0]
    settled = {}
    settle = MemoryStore.settle

    def noting(store, name, offset=0):
        settled[name] = offset
        settle(store, name, offset)

    monkeypatch.setattr(MemoryStore, "settle", noting)
    Log.open_for_append(stores, epoch=7)
    assert settled == {MARK: 0, durable.segment.name: durable.offset}
    all_of_it = stores[0].size(durable.segment.name)
    assert (durable.offset == all_of_it) == (mode is Mode.STABLE)
