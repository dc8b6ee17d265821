"""Latencies second by second: which seconds count, and what is said of the others."""

from __future__ import annotations

import numpy as np
import pytest
from sample_drill import SECONDS, sample_drill

from rewake_lab.bench.latency import Second, alone, latency_rows, seconds_of
from rewake_lab.bench.ticks import Ticks


def _second(latency: float, stolen: float) -> Second:
    return Second(np.full(100, latency), stolen)


QUIET = [_second(30.0, 0.002), _second(60.0, 0.0), _second(40.0, 0.01)]
DISTURBED = [_second(200.0, 0.03), _second(300.0, 0.012)]


def test_seconds_that_the_host_disturbed_do_not_count_when_there_are_enough_others() -> None:
    """What the host took is no latency of the engine; what all rounds came to is said beside it."""
    rounds = [[DISTURBED[0], QUIET[0]], QUIET[1:], [DISTURBED[1]]]
    assert alone(rounds) == QUIET
    p50, p99, of_all = latency_rows(rounds, 3, "at a rate")
    assert (p50.value, p99.value, of_all.value) == (40.0, 60.0, 200.0)
    assert p99.met is False
    assert of_all.met is None, "for information"
    assert "over the 3 seconds of 5" in p99.note
    assert "median 200, worst 300 ms; taken 1.1%, at most 3.0%" in p99.note


def test_every_result_of_a_quiet_second_counts() -> None:
    """One second in which results were late for another reason is not hidden by the others."""
    rounds = [[_second(20.0, 0.0)] * 40 + [_second(80.0, 0.0)]]
    assert latency_rows(rounds, 5, "at a rate")[1].value == 80.0


def test_all_rounds_count_when_the_host_hardly_ever_leaves_the_machine_alone() -> None:
    """Nobody may pick the one good second out of many."""
    rounds = [[DISTURBED[0]], [DISTURBED[1]], [QUIET[0]]]
    p50, p99, of_all = latency_rows(rounds, 3, "at a rate")
    assert (p50.value, p99.value, of_all.value) == (200.0, 200.0, 200.0)
    assert not p99.met
    assert "all 3 rounds: in too few of their 3 seconds (1)" in p99.note


def _ticks(taken_at_ms: float) -> list[Ticks]:
    """Of eight seconds; at one moment the host takes ten ticks of the 200 that a second has."""
    times = np.arange(0.0, SECONDS * 1e3 + 200, 20.0)
    return [Ticks(1_000_000.0 + at, 10 * (at >= taken_at_ms), int(at / 5)) for at in times]


def _left_alone(taken_at_ms: float) -> list[bool]:
    """Of a run of eight seconds, without its first, which fills caches and windows."""
    found = seconds_of(sample_drill(), _ticks(taken_at_ms))
    return [each.stolen == 0.0 for each in found]


def test_what_the_host_took_is_told_of_the_second_in_which_it_did() -> None:
    assert _left_alone(3300.0) == [True, True, False, True, True, True, True]
    found = seconds_of(sample_drill(), _ticks(taken_at_ms=3300.0))
    assert found[2].stolen == pytest.approx(10 / 320, rel=0.1)


def test_a_second_is_disturbed_too_while_its_last_results_are_on_their_way() -> None:
    assert _left_alone(4050.0) == [True, True, False, False, True, True, True]


def test_a_second_is_disturbed_too_that_begins_with_what_piled_up_before() -> None:
    assert _left_alone(3700.0) == [True, True, False, False, True, True, True]


def test_a_result_belongs_to_the_second_in_which_its_last_tuple_was_due() -> None:
    result = sample_drill()
    found = seconds_of(result, _ticks(taken_at_ms=0.0))
    first_second = sum(each.batch.num_rows for each in result.arrivals[0] if each.at < 101)
    assert sum(each.latencies.size for each in found) == result.results - first_second
    together = np.concatenate([each.latencies for each in found])
    assert np.array_equal(together, result.latencies_ms()[first_second:])
