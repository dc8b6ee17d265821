"""What a log that is read backwards has decided, against a set."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import numpy as np
from aggregate_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from rewake.recovery.eventual import decided
from rewake.recovery.eventual.decided import Decided

_NEWEST = 100_000
# Near, further than the first bits reach, and beyond all bits.
_IDS = st.one_of(st.integers(99_900, _NEWEST), st.integers(80_000, _NEWEST), st.integers(0, 90_000))
_SINCE = st.sampled_from([0, 1, 100, 20_000])
_STEPS = st.lists(st.tuples(st.booleans(), _SINCE, st.lists(_IDS, max_size=30)), max_size=12)


@examples(200)
@given(_STEPS, st.sampled_from([64, 9_600, 1 << 29]))
def test_it_knows_what_a_set_would_know(
    steps: list[tuple[bool, int, list[int]]], reach: int
) -> None:
    """Windows are asked for and added in any order, often twice, wherever the bits end."""
    model: set[int] = set()
    with mock.patch.object(decided, "REACH", reach):
        known = Decided()
        for asks, since, any_ids in steps:
            ids = [each for each in any_ids if each <= _NEWEST - since]
            ages = np.array([_NEWEST - since - each for each in ids], np.uint32)
            oldest = int(ages.max(initial=0))
            rows = [row for row, each in enumerate(ids) if each not in model]
            if asks:
                assert known.missing(ages, since, oldest).tolist() == rows
            chosen = np.array(rows[::2], np.int64)
            if asks and chosen.size:
                some = {ids[row] for row in chosen}
                assert known.add(ages, since, oldest, chosen) == len(some)
                model |= some
            elif not asks:
                assert known.add(ages, since, oldest) == len(set(ids) - model)
                model |= set(ids)


def test_a_window_open_for_years_takes_no_memory_for_each_position() -> None:
    """Also a log that lies costs no more than the ids that it states."""

    def decide() -> None:
        known = Decided()
        assert known.add(np.array([2**61, 5, 1], np.int64), 0, 2**61) == 3
        assert known.missing(np.array([2**61 - 1, 4, 0, 9], np.int64), 1, 2**61).tolist() == [3]

    # A process that does so first loads compiled code, which takes memory once.
    decide()
    tracemalloc.start()
    decide()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= (1 << 26) + (1 << 20)
