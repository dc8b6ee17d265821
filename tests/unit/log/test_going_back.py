"""A log that goes back: which frames are the log, for everybody who looks."""

import pytest
from log_vocabulary import number_of, read_numbers, sample_turn

from rewake.log.files.layout import FLOOR, segment_id
from rewake.log.files.lineage import Lineage, LogRecord, check_record
from rewake.log.log import Log
from rewake.log.memory import Faults, MemoryStore, PowerLost
from rewake.log.reading.reader import LogReader
from rewake.log.retention import Needs, Retention, trim
from rewake.log.verify import verify
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import Fenced, HistoryMismatch, OutOfRange, TakenBack
from rewake.node.channels.origins import check_origin

SMALL = Limits(segment_bytes=600, index_interval=200)


def written(stores: list[MemoryStore], numbers: range, **how) -> DirectWriter:
    writer = DirectWriter([store.attach() for store in stores], limits=SMALL, **how)
    for number in numbers:
        writer.append(sample_turn(number))
    return writer


@pytest.fixture(params=[1, 2], ids=["one stripe", "two stripes"])
def stores(request) -> list[MemoryStore]:
    """A log of 30 frames of 3 tuples, in several segments, by epoch 1."""
    stores = [MemoryStore() for _ in range(request.param)]
    Log.create(stores, "back", log_id=5)
    written(stores, range(30), epoch=1)
    return stores


def reader_of(stores: list[MemoryStore]) -> LogReader:
    return Log.open_reader([store.attach() for store in stores])


@pytest.mark.parametrize("to", [*range(0, 31, 3), 29, 30])
def test_everybody_agrees_where_it_went_back_to(stores, to):
    """Reading forwards, backwards, by position and by timestamp; the report; the next writer."""
    point = written(stores, range(100, 105), epoch=2, back_to=to).point
    assert point.frontier[:2] == (to, to * 3)
    assert point.frontier.timestamp == (to - 1) * 10 or to == 0
    expected = [*range(to), *range(100, 105)]
    reader = reader_of(stores)
    assert [number_of(frame) for frame in reader.frames()] == expected
    assert [number_of(frame) for frame in reader.frames_backwards()] == expected[::-1]
    for sequence, number in enumerate(expected):
        assert number_of(next(reader.frames(from_sequence=sequence))) == number
        assert number_of(next(reader.frames(from_position=sequence * 3 + 1))) == number
    assert number_of(next(reader.frames(from_timestamp=1000))) == 100
    report = verify(stores)
    assert report.intact
    assert (report.frames, report.end_sequence) == (to + 5, to + 5)
    assert written(stores, range(0), epoch=3).point.frontier.sequence == to + 5


def test_it_does_not_go_back_beyond_its_end_or_into_what_was_trimmed(stores):
    """Refused, and nothing is changed; a writer is not even fenced for what was trimmed."""
    owner = written(stores, range(30, 31), epoch=2)
    floor = trim(stores, Needs(recovery=12), Retention(max_bytes=0)).floor
    assert floor > 0
    before = read_numbers(stores)
    with pytest.raises(OutOfRange, match="were trimmed"):
        written(stores, range(0), epoch=3, back_to=floor - 1)
    owner.append(sample_turn(31))
    with pytest.raises(OutOfRange, match="it ends at 32"):
        written(stores, range(0), epoch=3, back_to=33)
    assert read_numbers(stores) == {**before, 31: 31}
    empty = MemoryStore()
    Log.create(empty, "empty", log_id=6)
    with pytest.raises(OutOfRange, match="no frame yet"):
        Log.open_for_append(empty, back_to=1)


def test_one_who_follows_goes_on_or_is_told(stores):
    """Told at the next look, though the log has grown beyond where it was."""
    reader = reader_of(stores)
    ahead, behind, just_there = reader.tail(), reader.tail(), reader.tail()
    assert len(ahead.poll()) == 30
    assert len(behind.poll(max_frames=7)) == 7
    assert len(just_there.poll(max_frames=20)) == 20
    backwards = reader.frames_backwards()
    below = reader.frames_backwards()
    next(backwards)
    assert [next(below).sequence for _ in range(15)][-1] == 15
    written(stores, range(100, 125), epoch=2, back_to=20)
    with pytest.raises(TakenBack, match="gone back to frame 20"):
        ahead.poll()
    with pytest.raises(TakenBack):
        ahead.poll()
    with pytest.raises(TakenBack):
        next(backwards)
    assert [frame.sequence for frame in below] == list(range(14, -1, -1))
    expected = [*range(7, 20), *range(100, 125)]
    assert [number_of(frame) for frame in behind.poll()] == expected
    assert [number_of(frame) for frame in just_there.poll()] == expected[13:]
    assert reader.end_sequence == 45


def test_one_who_follows_is_told_though_what_went_back_is_trimmed(stores):
    """The first segment that is left still says who came before it."""
    tail = reader_of(stores).tail()
    assert len(tail.poll()) == 30
    written(stores, range(100, 120), epoch=2, back_to=10)
    third = written(stores, range(200, 201), epoch=3)
    third.close()  # its anchor
    assert trim(stores, Needs(recovery=30), Retention(max_bytes=0)).floor == 30
    assert not [n for n in stores[0].names() if (s := segment_id(n)) and s.epoch < 3]
    with pytest.raises(TakenBack):
        tail.poll()


def test_what_was_taken_back_takes_no_room_after_a_trim(stores):
    """Whole segments go, though nothing below the floor does; an old reader is told."""
    backwards = reader_of(stores).frames_backwards(chunk_bytes=64)
    next(backwards)
    written(stores, range(100, 102), epoch=2, back_to=10)
    trimmed = trim(stores, Needs(recovery=0), Retention(max_bytes=0))
    assert trimmed.floor == 0
    assert trimmed.segments > 0
    for store in stores:
        left = [s for name in store.names() if (s := segment_id(name))]
        assert all(segment.first_sequence <= 10 for segment in left)
    assert verify(stores).intact
    assert len(read_numbers(stores)) == 12
    with pytest.raises(TakenBack):
        list(backwards)


def test_a_predecessor_does_not_trim_what_its_successor_went_back_to(stores):
    """It is fenced at the last moment before it publishes the floor."""
    successor = DirectWriter([store.attach() for store in stores], epoch=2, back_to=12)
    with pytest.raises(Fenced):
        trim(stores, Needs(recovery=11), Retention(max_bytes=0), epoch=1)
    assert FLOOR not in stores[0].names()
    successor.append(sample_turn(100))
    assert len(read_numbers(stores)) == 13


def test_it_has_gone_back_when_one_stripe_is_sealed():
    """Its writer dies before it reaches the other: both end there, for readers and writers."""
    stores = [MemoryStore() for _ in range(2)]
    Log.create(stores, "back", log_id=5)
    written(stores, range(30), epoch=1)
    stores[1].faults = Faults(crash_at=2)  # it settles a segment there, then wants to begin its own
    with pytest.raises(PowerLost):
        written(stores, range(0), epoch=2, back_to=13)
    stores[1].faults = Faults()
    assert list(read_numbers(stores).values()) == list(range(13))
    assert verify(stores).intact
    written(stores, range(100, 102), epoch=3)
    assert list(read_numbers(stores).values()) == [*range(13), 100, 101]


def test_lineage_tells_consumers_that_positions_were_taken_back(stores):
    """One who has consumed less goes on; one who has consumed more is refused, also later."""
    known = Lineage.of(5, reader_of(stores).view.chains[0], end=90)
    written(stores, range(100, 130), epoch=2, back_to=20)
    view = reader_of(stores).view
    said = Lineage.of(5, view.chains[0], view.frontier.position)
    assert said.steps[-1][:2] == (2, 60)
    check_origin("sink", "entry", known, said, 60)
    with pytest.raises(HistoryMismatch, match="epoch 2"):
        check_origin("sink", "entry", known, said, 61)


def test_a_record_of_what_was_taken_back_does_not_make_the_log_older(stores):
    """What the coordinator remembers of an epoch counts up to where a later one went back to."""
    record = LogRecord(5, 1, 30)
    check_record(stores, record, "node")
    written(stores, range(0), epoch=2, back_to=20)
    check_record(stores, record, "node")
    with pytest.raises(HistoryMismatch):
        check_record(stores, LogRecord(5, 2, 21), "node")
