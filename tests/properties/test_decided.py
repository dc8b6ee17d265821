"""What a log that is read backwards has decided, against a set."""

from __future__ import annotations

from unittest import mock

import numpy as np
from aggregate_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from rewake.recovery import decided
from rewake.recovery.decided import Decided

_NEWEST = 100_000
# Near, further than the first bits reach, and beyond all bits.
_IDS = st.one_of(st.integers(99_900, _NEWEST), st.integers(80_000, _NEWEST), st.integers(0, 90_000))
_STEPS = st.lists(st.tuples(st.booleans(), st.lists(_IDS, max_size=30)), max_size=12)


@examples(200)
@given(_STEPS, st.sampled_from([64, 9_600, 1 << 29]))
def test_it_knows_what_a_set_would_know(steps: list[tuple[bool, list[int]]], reach: int) -> None:
    """Ids are asked for and added in any order, often twice, wherever the bits end."""
    model: set[int] = set()
    with mock.patch.object(decided, "_REACH", reach):
        known = Decided(_NEWEST)
        for asks, ids in steps:
            given_ids = np.array(ids, np.int64)
            if asks:
                rows = [row for row, each in enumerate(ids) if each not in model]
                assert known.missing(given_ids).tolist() == rows
            else:
                assert known.add(given_ids) == len(set(ids) - model)
                model |= set(ids)


def test_a_window_open_for_years_takes_no_memory_for_each_position() -> None:
    """Also a log that lies costs no more than the ids that it states."""
    known = Decided(2**61)
    assert known.add(np.array([0, 5, 2**61 - 1], np.int64)) == 3
    assert known.missing(np.array([0, 1, 5, 2**61], np.int64)).tolist() == [1, 3]
    assert known._bits.nbytes <= 1 << 26
