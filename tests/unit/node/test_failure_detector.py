"""Silence, as a detector hears it: traces of heartbeats, and what it makes of them."""

from collections.abc import Iterable

import pytest

from rewake.node.coordinator.failure_detector import FailureDetector

LOOK_MS = 20.0


def listen(
    detector: FailureDetector,
    beats: dict[int, Iterable[float]],
    until_ms: float,
    *,
    from_ms: float = 0.0,
    asleep: tuple[tuple[float, float], ...] = (),
    look_ms: float = LOOK_MS,
) -> dict[int, float]:
    """Look on at heartbeats; when each connection was suspected.

    Who listens is asleep in some stretches of time; what comes then is read at its end, first.
    """
    waiting = sorted((at, number) for number, times in beats.items() for at in times)
    suspected: dict[int, float] = {}
    now = from_ms
    while now <= until_ms:
        while waiting and waiting[0][0] <= now:
            detector.heard(waiting.pop(0)[1], now)
        for number in detector.silent(now):
            suspected.setdefault(number, now)
            detector.forget(number)
        now += look_ms
        now = next((end for begin, end in asleep if begin <= now < end), now)
    return suspected


def every(gap_ms: float, until_ms: float, from_ms: float = 0.0) -> list[float]:
    """Heartbeats at a steady pace."""
    return [from_ms + gap_ms * number for number in range(int((until_ms - from_ms) / gap_ms))]


def started(*nodes: str, suspect_after_ms: float = 1_000.0) -> FailureDetector:
    """A detector that knows of these, as connections 1, 2 and so on."""
    detector = FailureDetector(suspect_after_ms)
    for number, node in enumerate(nodes, 1):
        detector.started(number, node, 0.0)
    return detector


def test_where_heartbeats_come_as_they_should_silence_is_noticed_after_what_was_set():
    """The first minutes it is more patient: it has not heard enough."""
    detector = started("a", suspect_after_ms=500.0)
    suspected = listen(detector, {1: every(100.0, 150_000.0)}, 160_000.0)
    assert 500.0 < suspected[1] - 149_900.0 < 560.0
    early = listen(started("a"), {1: every(100.0, 1_000.0)}, 10_000.0)
    assert 2_000.0 < early[1] - 900.0 < 2_200.0


def test_a_pause_as_long_as_those_that_were_seen_is_nobodys_death():
    """A collector of garbage, or a slow call, now and then: once it is known, it is expected."""
    beats = [at for at in every(100.0, 300_000.0) if at % 20_000.0 > 1_500.0]
    assert not listen(started("a"), {1: beats}, 299_900.0)


def test_a_machine_that_makes_everybody_wait_is_not_held_against_one():
    """What no node was spared: a new node, too, is given as long."""
    detector = started("a", "b")
    slow = every(900.0, 60_000.0)
    assert not listen(detector, {1: slow, 2: slow}, 59_000.0)
    assert detector.patience_ms("new") == pytest.approx(2_700.0, abs=100.0)


def test_one_slow_node_does_not_make_the_detector_slow_for_others():
    """Its own pace is its own."""
    detector = started("slow", "quick")
    beats = {1: every(2_000.0, 200_000.0), 2: every(100.0, 200_000.0)}
    detector.heard(1, 0.0)
    listen(detector, beats, 199_000.0)
    assert detector.patience_ms("slow") == pytest.approx(6_000.0, abs=200.0)
    assert detector.patience_ms("quick") == 1_000.0


def test_who_listens_and_was_asleep_blames_nobody():
    """SIGSTOP of the driver: whether heartbeats came meanwhile or not, it proves nothing."""
    asleep = ((20_000.0, 50_000.0),)
    beats = [at for at in every(100.0, 60_000.0) if not 20_000.0 < at < 49_900.0]
    assert not listen(started("a"), {1: beats}, 59_900.0, asleep=asleep)


def test_who_is_given_little_time_to_listen_counts_little_silence():
    """On a busy machine the coordinator is late as well: each look counts as one heartbeat."""
    detector = started("a")
    listen(detector, {1: every(100.0, 150_000.0)}, 149_900.0)
    suspected = listen(detector, {}, 170_000.0, from_ms=149_900.0, look_ms=500.0)
    assert suspected[1] - 149_900.0 >= 5_000.0


def test_long_gaps_are_forgotten_in_the_end():
    """A busy quarter of an hour does not make the rest of the day slow to notice."""
    detector = started("a")
    listen(detector, {1: every(1_800.0, 60_000.0)}, 60_000.0)
    assert detector.patience_ms("a") >= 5_000.0
    listen(detector, {1: every(100.0, 200_000.0, 60_000.0)}, 200_000.0, from_ms=60_000.0)
    assert detector.patience_ms("a") == 1_000.0


def test_an_attempt_that_loads_its_state_is_given_time():
    """Until its first heartbeat; and longer when that was not enough."""
    first = listen(started("a"), {}, 100_000.0)
    assert 30_000.0 < first[1] < 30_100.0
    detector = started("a")
    listen(detector, {}, 31_000.0)
    detector.started(2, "a", 31_000.0)
    again = listen(detector, {}, 200_000.0, from_ms=31_000.0)
    assert 60_000.0 < again[2] - 31_000.0 < 60_100.0


def test_an_attempt_that_says_it_is_still_starting_is_taken_at_its_word():
    """It waits for room on a disk, then loads: the first gap is that of a start."""
    detector = started("a")
    for now in range(0, 60_000, 250):
        detector.heard(1, float(now), starting=True)
        assert detector.silent(float(now)) == []
    suspected = listen(detector, {}, 100_000.0, from_ms=60_000.0)
    assert suspected[1] - 60_000.0 > 29_000.0


def test_who_was_suspected_is_given_longer():
    """On a machine that is too slow for the detector, a node still gets somewhere."""
    detector = FailureDetector()
    first = detector.patience_ms("a")
    began = 0.0
    for count in range(3):
        assert detector.patience_ms("a") == first * 2**count
        detector.started(count, "a", began)
        detector.heard(count, began)
        suspected = listen(detector, {}, began + 60_000.0, from_ms=began)
        assert suspected[count] - began > first * 2**count
        began += 60_000.0


def test_a_gap_that_was_seen_to_pass_is_never_a_death():
    """A call that takes half a minute every time: however long, it has been survived before."""
    detector = started("a", suspect_after_ms=40_000.0)
    listen(detector, {1: every(35_000.0, 211_000.0)}, 180_000.0)
    detector.suspect_after_ms = 1_000.0
    assert not listen(detector, {1: every(35_000.0, 600_000.0, 210_000.0)}, 590_000.0,
                      from_ms=180_000.0)  # fmt: skip
