"""Queries that take turns: who has input when, and what is made of what was seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.connectors.item_stream import ItemSource, ItemStream
from rewake_lab.bench.engine import price_of_logs
from rewake_lab.bench.rows import median_interval
from rewake_lab.bench.ticks import Ticks
from rewake_lab.bench.turns import InTurns, Rate, Sample, Turns, rates_of, watch

TURNS = Turns(contenders=2, settle_ms=20.0, measured_ms=70.0, drain_ms=10.0)


@given(contenders=st.integers(1, 4), now_ms=st.floats(0, 1e13))
def test_at_most_one_contender_has_input(contenders: int, now_ms: float) -> None:
    turns = Turns(contenders)
    assert sum(turns.has_input(each, now_ms) for each in range(contenders)) <= 1
    assert all(
        turns.has_input(each, now_ms)
        for each in range(contenders)
        if turns.is_measured(each, now_ms)
    )


def test_in_every_round_each_has_one_turn_and_another_goes_first() -> None:
    starts = [TURNS.at(turn * TURNS.turn_ms) for turn in range(8)]
    assert [each.number for each in starts] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [each.contender for each in starts] == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("over_ms", "has_input", "measured"),
    [(0.0, True, False), (20.0, True, True), (89.0, True, True), (91.0, False, False)],
)
def test_a_turn_settles_in_is_measured_and_drains(
    over_ms: float, has_input: bool, measured: bool
) -> None:
    now_ms = 4 * TURNS.turn_ms + over_ms
    assert TURNS.has_input(0, now_ms) == has_input
    assert TURNS.is_measured(0, now_ms) == measured
    assert not TURNS.has_input(1, now_ms)


def test_a_source_is_read_in_its_turn_alone_and_nothing_is_left_out() -> None:
    items = ItemSource(ItemStream(1, 10), tuples=300, event_tuples=100)
    source = InTurns(items, TURNS, 1)
    assert source.describe() == items.describe()
    reader = source.open(0, 1)
    reader.seek(100)
    assert reader.read(0.0) is None
    events = [reader.read(TURNS.turn_ms + over_ms) for over_ms in (0.0, 5.0)]
    assert [each.start for each in events if each is not None] == [100, 200]
    assert reader.ended
    reader.close()


def test_a_rate_is_from_the_time_that_is_measured_and_of_one_round() -> None:
    """Contender 1 is measured from 120 to 190 ms in round 0, and from 220 on in round 1."""
    seen = [(105.0, 1000), (125.0, 2000), (150.0, 2050), (175.0, 2100), (195.0, 9000),
            (225.0, 9500)]  # fmt: skip
    samples = [Sample(Ticks(wall_ms), position) for wall_ms, position in seen]
    assert rates_of(TURNS, 1, samples) == {0: Rate(pytest.approx(2000.0), 0.0)}


def test_what_the_host_took_is_no_time_that_a_query_had() -> None:
    """A quarter of the ticks from 125 to 175 ms; what it took before is not counted."""
    seen = [(Ticks(105.0, 0, 0), 0), (Ticks(125.0, 7, 20), 2000), (Ticks(175.0, 10, 32), 2090)]
    samples = [Sample(*each) for each in seen]
    rate = rates_of(TURNS, 1, samples)[0]
    assert rate == (pytest.approx(1800.0), 0.25)
    assert rate.of_what_was_left == pytest.approx(2400.0)


def test_the_price_of_logs_is_the_median_of_rounds_and_its_row_says_how_sure_it_is() -> None:
    quick, slow, cut = Rate(100.0, 0.0), Rate(80.0, 0.0), Rate(47.5, 0.5)
    ratio, by_the_clock = price_of_logs([(cut, quick), (slow, quick), (quick, quick)])
    assert (ratio.value, ratio.met) == (pytest.approx(0.95), True)
    assert "3 rounds" in ratio.note
    assert "between 0.800 and 1.000; the host took 8.3%" in ratio.note
    assert (by_the_clock.value, by_the_clock.met) == (pytest.approx(0.8), None)


class _Worker:
    """A query that gets on while it has input."""

    def __init__(self, contender: int, tuples_per_ms: int) -> None:
        self.contender, self.tuples_per_ms = contender, tuples_per_ms
        self.tuples = 0

    def passed(self, now_ms: float, step_ms: float) -> None:
        if TURNS.has_input(self.contender, now_ms):
            self.tuples += int(self.tuples_per_ms * step_ms)


def test_whole_rounds_are_watched_behind_the_one_that_is_under_way() -> None:
    now_ms = 150.0
    queries = [_Worker(0, 90), _Worker(1, 100)]

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        now_ms += seconds * 1e3
        for each in queries:
            each.passed(now_ms, seconds * 1e3)

    positions = [lambda each=each: each.tuples for each in queries]
    with_logs, without = watch(TURNS, 3, positions, clock=lambda: now_ms / 1e3, sleep=sleep)
    for found, tuples_per_s in ((with_logs, 90e3), (without, 100e3)):
        assert sorted(found) == [2, 3, 4]
        assert [each.tuples_per_s for each in found.values()] == pytest.approx([tuples_per_s] * 3)


def test_a_median_lies_between_ranks_of_what_was_measured() -> None:
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    low, high = median_interval([float(each) for each in range(100)])
    assert (low, high) == (39.0, 60.0), "tables of the binomial distribution have the same ranks"
