"""What may go, and what must stay."""

import pytest
from log_vocabulary import number_of, read_numbers, sample_turn

from rewake.log.files.layout import segment_id
from rewake.log.log import Log
from rewake.log.memory import Faults, MemoryStore, PowerLost
from rewake.log.retention import Needs, Retention, trim
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.model.stream_event import NO_TIME, TIME_LIMIT

UNNEEDED = Retention(max_bytes=0)


@pytest.fixture(params=[1, 2], ids=["one stripe", "two stripes"])
def stores(request) -> list[MemoryStore]:
    stores = [MemoryStore() for _ in range(request.param)]
    Log.create(stores, "retained", log_id=5)
    writer = DirectWriter(stores, limits=Limits(segment_bytes=600))
    for number in range(60):
        writer.append(sample_turn(number))
    writer.close()
    return stores


def segments(stores: list[MemoryStore]) -> int:
    return sum(segment_id(name) is not None for store in stores for name in store.names())


def test_by_default_everything_is_kept(stores):
    """Needs alone delete nothing: history is kept as long as the user says."""
    before = segments(stores)
    assert trim(stores, Needs(recovery=50), Retention()).segments == 0
    assert segments(stores) == before


@pytest.mark.parametrize("needed", [0, 1, 17, 30, 59])
def test_nothing_that_is_needed_goes(stores, needed):
    """By sequence, by position, or for recovery; the strictest wins."""
    for needs in (
        Needs(recovery=needed),
        Needs(sequences={"slow": needed, "quick": 55}),
        Needs(positions={"slow": needed * 3}, recovery=58),
    ):
        floor = trim(stores, needs, UNNEEDED).floor
        assert floor <= needed
        assert read_numbers(stores) == {number: number for number in range(floor, 60)}


def test_what_nobody_needs_goes_but_never_the_newest_segment(stores):
    """A log that is trimmed to nothing can still be appended to and read."""
    trimmed = trim(stores, Needs(), UNNEEDED)
    assert trimmed.floor > 50
    assert len(stores) <= segments(stores) < 2 * len(stores)
    writer = DirectWriter(stores)
    assert writer.append(sample_turn(60)) == 60
    assert read_numbers(stores) == {number: number for number in range(trimmed.floor, 61)}


def test_age_is_told_by_the_streams_own_clock(stores):
    """A segment goes when all of it is older than the limit."""
    floor = trim(stores, Needs(), Retention(max_age=200)).floor
    oldest = next(Log.open_reader(stores).frames())
    assert floor > 0
    assert oldest.timestamp >= 590 - 200 - 100
    assert floor <= 39


def test_the_end_of_a_stream_makes_nothing_older(stores):
    """Its clock then shows no time; what was kept for so long before it is kept for ever."""
    before = trim([store.attach() for store in stores], Needs(), Retention(max_age=200)).floor
    for number in range(60, 90):
        ended = DirectWriter(stores, epoch=number, limits=Limits(segment_bytes=100))
        ended.append(sample_turn(number)._replace(timestamp=TIME_LIMIT))
        ended.close()
    floor = trim(stores, Needs(), Retention(max_age=200)).floor
    oldest = next(Log.open_reader(stores).frames())
    assert before <= floor <= 39
    assert 590 - 200 - 100 <= oldest.timestamp <= 390


@pytest.mark.parametrize(("times", "goes"), [(100, False), (590, True)])
def test_what_has_no_time_goes_with_what_came_behind_it(times, goes):
    """Before the clock has told any, nobody knows how old it is; it is older than what follows."""
    stores = [MemoryStore()]
    Log.create(stores, "retained", log_id=5)
    writer = DirectWriter(stores, limits=Limits(segment_bytes=600))
    for number in range(60):
        untimed = NO_TIME if number % 2 else NO_TIME + 2**61  # none heard, or none told
        turn = sample_turn(number)
        writer.append(turn if number >= 30 else turn._replace(timestamp=untimed))
    writer.close()
    floor = trim(stores, Needs(), Retention(max_age=600 - times)).floor
    assert (floor > 30) == goes
    assert (floor > 0) == goes


def test_bytes_are_kept_up_to_the_limit(stores):
    """Oldest first, until no more than that is kept."""
    trim(stores, Needs(), Retention(max_bytes=3000))
    kept = sum(frame.length for frame in Log.open_reader(stores).frames())
    assert 1500 < kept <= 3000


def test_a_trim_killed_anywhere_is_finished_by_the_next(stores):
    """Segments below the floor that were left behind are not read, and go later."""
    for operation in range(1, 40):
        victims = [store.killed() for store in stores]
        faults = Faults(crash_at=operation)
        for victim in victims:
            victim.faults = faults
        try:
            floor = trim(victims, Needs(recovery=40), UNNEEDED).floor
        except PowerLost:
            floor = None
        for victim in victims:
            victim.faults = Faults()
        numbers = read_numbers(victims)
        assert list(numbers) == list(range(min(numbers), 60))
        final = trim(victims, Needs(recovery=40), UNNEEDED).floor
        assert floor in (None, final)
        assert segments(victims) == segments_after_whole_trim(stores)


def segments_after_whole_trim(stores: list[MemoryStore]) -> int:
    whole = [store.killed() for store in stores]
    trim(whole, Needs(recovery=40), UNNEEDED)
    return segments(whole)


def test_a_dead_writers_segments_go_too(stores):
    """A fenced writer's rotated segment is not part of the log, and does not stay for ever."""
    zombie = DirectWriter(stores, limits=Limits(segment_bytes=100))
    successor = DirectWriter([store.attach() for store in stores], epoch=9)
    for store in stores:
        name = f"segment-{61:020d}-{zombie.pipeline.epoch:020d}.log"
        store.create(name, b"whatever a fenced writer left")
    for number in range(60, 70):
        successor.append(sample_turn(number))
    successor.close()
    final = DirectWriter(stores)
    final.append(sample_turn(70))
    final.close()
    assert trim(stores, Needs(), UNNEEDED).floor == 70
    assert segments(stores) == len(stores)
    assert [number_of(frame) for frame in Log.open_reader(stores).frames()] == [70]
