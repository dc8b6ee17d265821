"""Who is furthest behind in time, kept step by step, is who looking at everybody finds."""

from collections import UserDict
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rewake.node.channels.furthest_behind import FurthestBehind

NAMES = 1024


class At(NamedTuple):
    """How far somebody has come."""

    watermark: int
    ended: bool = False


class Counted(UserDict[str, At]):
    """Somebody's whereabouts, and how often they were asked for."""

    looks = 0

    def __getitem__(self, name: str) -> At:
        self.looks += 1
        return super().__getitem__(name)


def step(reached: Counted, behind: FurthestBehind, name: str, now: At) -> None:
    """Somebody moves."""
    before = reached.data.get(name)
    reached[name] = now
    behind.moved(name, before)


PLACES = st.builds(At, st.integers(-3, 12), st.booleans())


@given(st.lists(st.tuples(st.sampled_from("abcde"), PLACES)), st.dictionaries(st.text(), PLACES))
def test_what_is_kept_is_what_looking_at_all_finds(
    steps: list[tuple[str, At]], first: dict[str, At]
) -> None:
    """Whoever comes, goes on, ends, or begins again behind where it was."""
    reached = Counted(first)
    behind = FurthestBehind(reached)
    for name, now in steps:
        step(reached, behind, name, now)
        behind.check_invariants()
        times = [each.watermark for each in reached.data.values() if not each.ended]
        assert (behind.running, behind.least) == (len(times), min(times, default=None))


@given(st.integers(0, 2**32))
def test_a_step_looks_at_few_of_many(seed: int) -> None:
    """At its own, and at one for every step that was not settled before."""
    random = Random(seed)
    reached = Counted({str(number): At(number) for number in range(NAMES)})
    behind = FurthestBehind(reached)
    reached.looks = 0
    for steps in range(1, 201):
        name = str(random.randrange(NAMES))
        watermark, ended = reached.data[name]
        further = At(watermark + random.randrange(2000), ended or random.random() < 0.1)
        step(reached, behind, name, further)
        assert reached.looks <= 4 * steps
