"""Reading: from a place, backwards, and along with the writer."""

from itertools import islice

import pytest
from log_vocabulary import number_of, sample_turn

from rewake.log.files.layout import segment_id
from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.log.retention import Needs, Retention, trim
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import DamagedLog, OutOfRange, UsageError

SMALL = Limits(segment_bytes=1500, index_interval=400)
COUNT = 60


@pytest.fixture(params=[1, 3], ids=["one stripe", "three stripes"])
def stores(request) -> list[MemoryStore]:
    """A log of 60 frames over two epochs; each frame has 3 tuples, every fifth has none."""
    stores = [MemoryStore() for _ in range(request.param)]
    Log.create(stores, "reader", log_id=21)
    for epoch in range(2):
        writer = DirectWriter(stores, limits=SMALL)
        for number in range(epoch * 30, epoch * 30 + 30):
            writer.append(sample_turn(number, tuples=3 if number % 5 else 0))
        writer.close()
    return stores


def test_any_sequence_can_be_the_beginning(stores):
    """Also the end itself, where there is nothing yet."""
    reader = Log.open_reader(stores)
    for start in range(COUNT + 1):
        found = [number_of(frame) for frame in reader.frames(from_sequence=start)]
        assert found == list(range(start, COUNT))


def test_a_position_leads_to_the_frame_that_contains_it(stores):
    """Frames without tuples contain no position."""
    reader = Log.open_reader(stores)
    frames = list(reader.frames())
    for position in range(reader.end_position):
        frame = next(reader.frames(from_position=position))
        assert frame.position <= position < frame.position + frame.tuples
        assert frame == frames[frame.sequence]
    assert list(reader.frames(from_position=reader.end_position)) == []


def test_a_timestamp_leads_to_the_first_frame_that_is_not_older(stores):
    """The sample's timestamps are its numbers times ten."""
    reader = Log.open_reader(stores)
    for timestamp in range(-5, COUNT * 10, 7):
        expected = max(0, -(-timestamp // 10))
        found = [frame.sequence for frame in reader.frames(from_timestamp=timestamp)]
        assert found == list(range(expected, COUNT))


def test_a_timestamp_that_goes_back_does_not_confuse_the_lookup():
    """The first frame that is not older, although older ones follow it."""
    store = MemoryStore()
    Log.create(store, "clock", log_id=21)
    writer = DirectWriter(store, limits=Limits(segment_bytes=500, index_interval=150))
    stamps = [5, 1, 9, 2, 9, 30, 4, 4, 28, 31, 3, 40]
    for stamp in stamps:
        writer.append(TurnRecord(0, stamp, 0, 1, 0, [Section(SectionKind.OPENS, bytes(40))]))
    reader = Log.open_reader(store)
    for asked in range(45):
        expected = next((i for i, stamp in enumerate(stamps) if stamp >= asked), len(stamps))
        found = [frame.sequence for frame in reader.frames(from_timestamp=asked)]
        assert found == list(range(expected, len(stamps)))


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1000, 1 << 20])
def test_the_size_of_a_read_changes_nothing(stores, chunk_bytes):
    """Frames that lie across two reads, forwards and backwards."""
    reader = Log.open_reader(stores)
    forwards = list(reader.frames(chunk_bytes=chunk_bytes))
    backwards = list(reader.frames_backwards(chunk_bytes=chunk_bytes))
    assert [number_of(frame) for frame in forwards] == list(range(COUNT))
    assert backwards == forwards[::-1]
    some = reader.frames_backwards(before_sequence=7, chunk_bytes=chunk_bytes)
    assert [frame.sequence for frame in some] == [6, 5, 4, 3, 2, 1, 0]


def test_two_places_at_once_are_refused(stores):
    """UsageError, before anything is read."""
    with pytest.raises(UsageError):
        Log.open_reader(stores).frames(from_sequence=1, from_position=1).__next__()


def test_what_is_not_in_the_log_is_out_of_range(stores):
    """Below what is retained, and beyond the end: the error says what there is."""
    trim(stores, Needs(recovery=40), Retention(max_bytes=0))
    reader = Log.open_reader(stores)
    first = reader.first_sequence
    assert 0 < first <= 40
    for place in (
        {"from_sequence": first - 1},
        {"from_sequence": COUNT + 1},
        {"from_position": 0},
        {"from_position": reader.end_position + 1},
        {"from_timestamp": 0},
    ):
        with pytest.raises(OutOfRange, match=f"first .* {first}|first available|first retained"):
            list(reader.frames(**place))
    assert [frame.sequence for frame in reader.frames()] == list(range(first, COUNT))
    assert [f.sequence for f in reader.frames_backwards()] == list(range(first, COUNT))[::-1]


def test_who_is_owed_what_was_trimmed_is_told_however_much_it_has_seen(stores):
    """Going on with the first frame that is left would leave a gap that nobody notices."""
    trim(stores, Needs(recovery=40), Retention(max_bytes=0))
    reader = Log.open_reader(stores)
    first, position = reader.first_sequence, reader.view.first_position
    for seen in (0, first // 2, first):
        with pytest.raises(OutOfRange, match=f"the first available is {position}"):
            reader.owed(position - 1, seen)
        (frame,) = reader.owed(position, seen).poll(max_frames=1)
        assert frame.sequence == first


def test_who_has_seen_more_than_a_reader_waits_for_it(stores):
    """What was sent from memory may be ahead of what can be seen; only what is gone is an error."""
    reader = Log.open_reader(stores)
    assert reader.owed(reader.end_position + 5, COUNT + 3).poll() == []
    assert all(frame.tuples == 0 for frame in reader.owed(reader.end_position + 5, 0).poll())


def test_frames_that_go_while_they_are_read_are_out_of_range(stores):
    """A trim under a reader is told from damage."""
    reader = Log.open_reader(stores)
    frames = reader.frames(chunk_bytes=1)
    next(frames)
    backwards = reader.frames_backwards(chunk_bytes=1)
    next(backwards)
    floor = trim(stores, Needs(recovery=55), Retention(max_bytes=0)).floor
    for rest in (frames, backwards):
        with pytest.raises(OutOfRange, match=f"the first available is {floor}"):
            list(rest)


def test_a_tail_goes_from_past_to_live(stores):
    """Each frame once, in order, over rotations and a new writer; nothing when nothing is new."""
    reader = Log.open_reader(stores)
    tail = reader.tail(from_sequence=50)
    seen = [number_of(frame) for frame in tail.poll()]
    assert tail.poll() == []
    for epoch in range(3):
        writer = DirectWriter(stores, limits=SMALL)
        for number in range(60 + epoch * 20, 80 + epoch * 20):
            writer.append(sample_turn(number))
            if number % 3 == 0:
                seen += [number_of(frame) for frame in tail.poll(max_frames=5)]
        writer.close()
    while new := tail.poll(max_frames=5):
        seen += [number_of(frame) for frame in new]
    assert seen == list(range(50, 120))
    assert tail.sequence == 120


def test_tails_may_share_a_reader(stores):
    """One refresh serves them all."""
    reader = Log.open_reader(stores)
    tails = [reader.tail(from_sequence=start) for start in (0, 30, 60)]
    writer = DirectWriter(stores, limits=SMALL)
    writer.append(sample_turn(60))
    reader.refresh()
    found = [[frame.sequence for frame in tail.poll(refresh=False)] for tail in tails]
    assert [len(frames) for frames in found] == [61, 31, 1]


def test_an_index_that_is_missing_costs_nothing_but_time(stores):
    """Every lookup gives the same without any index."""
    reader = Log.open_reader(stores)
    places = [next(reader.frames(from_position=p)).sequence for p in range(0, 140, 3)]
    for store in stores:
        for name in store.names():
            if name.endswith(".idx"):
                store.delete(name)
    assert [next(reader.frames(from_position=p)).sequence for p in range(0, 140, 3)] == places


def test_an_index_that_lies_is_not_believed(stores):
    """Another segment's index, in the place of this one's."""
    for store in stores:
        indexes = sorted(name for name in store.names() if name.endswith(".idx"))
        contents = [store.read(name, 0, 1 << 20) for name in indexes]
        for name, content in zip(indexes, contents[1:] + contents[:1], strict=True):
            store.truncate(name, 0)
            store.write(name, 0, [content])
    reader = Log.open_reader(stores)
    for start in range(COUNT):
        assert next(reader.frames(from_sequence=start)).sequence == start


def test_a_frame_damaged_below_the_mark_stops_every_reader(stores):
    """Forwards and backwards: what is sound is read, then DamagedLog with its place."""
    victim = next(frame for frame in Log.open_reader(stores).frames() if frame.sequence == 20)
    for store in stores:
        if victim.segment in [name for name in store.names() if segment_id(name)]:
            data = store.read(victim.segment, victim.offset, victim.length)
            if int.from_bytes(data[24:32], "little") == 20:
                store.write(victim.segment, victim.offset + 100, [b"?"])
    reader = Log.open_reader(stores)
    for frames, expected in ((reader.frames(), 20), (reader.frames_backwards(), 39)):
        with pytest.raises(DamagedLog) as caught:
            list(islice(frames, expected + 1))
        assert (caught.value.segment, caught.value.sequence) == (victim.segment, 20)
