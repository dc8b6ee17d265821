"""What the experiments on other kinds of windows share: run, look on, crash, recover.

Every kind of window runs over the same stream, without CHECKs and with a target for the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rewake.connectors.item_stream import ItemStream
from rewake.operators.aggregate.operator import Aggregate
from rewake.operators.windows.specs import CountWindow, TimeWindow, count_window, time_window
from rewake.recovery.policies.policy import CheckpointPolicy, Extent, OpenOnly
from rewake.recovery.policies.targets import TargetsPolicy
from rewake_lab.reproduce.cec.target_runs import (
    CHECK_COSTS,
    NO_TARGET,
    PAPER_ITEMS,
    Case,
    Sizes,
    run_case,
    write_upstream,
)
from rewake_lab.reproduce.driving import Clock, averages
from rewake_lab.reproduce.experiment import Row, Setting

NONE, KEPT = "no CHECKs", "target U"
COUNT, TIME = "count", "time"
WINDOW = 10
# Of each item, in the target for the replay; a window of ten lives four times as long.
REPLAY_TUPLES = 2.5
# All of the time may go into CHECKs: what is asked is how many a target takes.
_PERIOD_MS = 100
# A purchase of the item stream every so many microseconds.
_TUPLE_US = 10


class Kind(NamedTuple):
    """A kind of window: of a count or a time, one starting every tenth or more of its size."""

    of: str
    every: int = WINDOW

    def window(self, items: int) -> CountWindow | TimeWindow:
        """The window; one of a time holds as many tuples of an item, on average."""
        if self.of == COUNT:
            return count_window(WINDOW, self.every)
        unit_us = items * _TUPLE_US
        return time_window(f"{WINDOW * unit_us}us", f"{self.every * unit_us}us")


def kind_sizes(setting: Setting) -> Sizes:
    """The crash comes shortly before time windows close: when most depends on them."""
    near_the_end = 3 * WINDOW - 0.5
    if setting.full:
        return Sizes(PAPER_ITEMS // 4, 92, near_the_end)
    return Sizes(PAPER_ITEMS // 40, 37, near_the_end)


def run_kinds(setting: Setting, kinds: Sequence[Kind]) -> Iterator[Row]:
    """Rows of all kinds of windows under both policies: one for each look at a run.

    What is known of the whole run, its crash included, stands in each of its rows.
    """
    size = kind_sizes(setting)
    stream = ItemStream(setting.seed, size.items)
    upstream = setting.folder / "upstream"
    write_upstream(upstream, stream, size)
    for kind in kinds:
        make = partial(averages, kind.window(size.items))
        case = Case(stream, size, make)
        run_native(case, size.tuples // 10)  # what is to be compiled is compiled now
        native_s = run_native(case, size.tuples)
        for name, policy in _policies(size).items():
            looks, watch = _looks(size)
            known = run_case(setting.folder / "operator", upstream, case, policy, watch)
            labels: Row = {"of": kind.of, "every": kind.every, "policy": name}
            labels |= {"items": size.items, "tuples": size.tuples, "native_s": native_s}
            yield from ({**labels, **known, **look} for look in looks)


def run_native(case: Case, tuples: int) -> float:
    """Processor seconds for the operator alone."""
    operator: Aggregate = case.make()
    clock = Clock()
    for start in range(0, tuples, case.size.event_tuples):
        outcome = operator.process(case.stream.event(start, start + case.size.event_tuples))
        if outcome.results is not None:
            outcome.results.serialize()
    return clock.processor_seconds


def _policies(size: Sizes) -> dict[str, CheckpointPolicy]:
    target = TargetsPolicy(
        records=NO_TARGET,
        tuples=int(REPLAY_TUPLES * size.items),
        interval_ms=_PERIOD_MS,
        period_ms=_PERIOD_MS,
        check_us=CHECK_COSTS["a tenth of it"] * 1e6 / size.rate,
    )
    return {NONE: OpenOnly(), KEPT: target}


def _looks(size: Sizes) -> tuple[list[Row], Callable[[Extent], None]]:
    looks: list[Row] = []

    def watch(extent: Extent) -> None:
        looks.append(
            {
                "at_tuples_per_item": (extent.position + 1) / size.items,
                "open_then": extent.open_windows,
                "extent_then": extent.records,
                "replay_then": extent.tuples,
            }
        )

    return looks, watch


def kinds_scaling(setting: Setting) -> str:
    """What was chosen, there being nothing to follow."""
    size = kind_sizes(setting)
    return (
        f"{size.items:,} items, windows of {WINDOW} tuples of an item or of the time in which as "
        f"many come on average, stream events of {size.event_tuples}, crash at tuple "
        f"{size.tuples:,}, shortly before time windows close; without CHECKs, and with U = "
        f"{int(REPLAY_TUPLES * size.items):,} tuples and as many CHECKs as that takes; what runs "
        "cost is processor time, so that other work on the machine counts little"
    )
