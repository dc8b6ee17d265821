"""The drills of `rewake bench recover-within`: one run for a configuration, with many kills.

A run is a real query: its nodes are processes (or tasks of a local Spark), its logs are files, and
the node that holds the windows is killed with SIGKILL at moments that a seed decides.  Each kill is
a drill: what the node itself last said a crash would cost is kept beside what it did cost, from the
kill to the first new result and without the restart of a process, which is what is promised.

What always holds: a run whose results are not what they should be is an error, and yields no
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.drill.kept import Course, course_of
from rewake.drill.node_history import NodeHistory
from rewake.drill.run import DrillResult, Recovered, run_drill
from rewake.drill.when import Strike
from rewake.model.errors import RewakeError
from rewake.net.queries.processes import Launcher
from rewake_lab.bench.recover_within.oracle import fewest_checks, window_lives
from rewake_lab.bench.recover_within.streams import ShapedDrill

__all__ = [
    "EVENT_TUPLES", "LATEST", "NODE", "RATE", "SOONEST", "WINDOW",
    "Case", "Drilled", "Ran", "WrongResults", "drills_table", "run_case",
]  # fmt: skip

NODE = "averages"
RATE = 400_000.0
# A stream event holds what comes in a hundredth of a second, so that waiting for one is no part of
# a recovery.
EVENT_TUPLES = 4096
# From one kill to the next, in seconds; a node that has not come back by then is waited for.
SOONEST, LATEST = 1.2, 2.8
_REST_SECONDS = 2.0
WINDOW = 10
# The limit wavers with the rates, and the oracle is held to its median.
_KEPT = 0.9
_LIMITS = (
    "extent_records", "replay_tuples", "worst_fixed_ms", "worst_load_us", "worst_replay_us",
)  # fmt: skip
# Of so many windows the first close late, and results are few for a while.
_MANY_WINDOWS = 1_000_000
_FILLING_SECONDS = 4.0


class WrongResults(RewakeError):
    """A drill's results are not those of the oracle: the engine is wrong, and no figure counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration: what is promised, what the keys are like, how many windows, how often."""

    target_s: float
    keys: str
    windows: int
    kills: int
    on: str = "processes"
    # Whether the target can be met at all.
    possible: bool = True
    seed: int = 1

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.target_s:g} s, {self.keys} keys, {self.windows:,} windows, on {self.on}"

    def drill(self) -> tuple[ShapedDrill, list[Strike]]:
        """The query and its kills."""
        random = Random(f"{self.name}, {self.seed}")
        moments = np.cumsum([random.uniform(SOONEST, LATEST) for _ in range(self.kills)])
        filling = _FILLING_SECONDS if self.windows >= _MANY_WINDOWS else 0.0
        # Once until the first result, which moments are counted from; once until there are many.
        moments += filling
        seconds = moments[-1] + _REST_SECONDS + filling
        drill = ShapedDrill(
            name="recover-within",
            tuples=int(RATE * seconds),
            items=self.windows,
            window=WINDOW,
            seed=self.seed,
            event_tuples=EVENT_TUPLES,
            rate=RATE,
            recover_within=f"{self.target_s * 1e3:g}ms",
            shape=self.keys,
        )
        strikes = [
            Strike(NODE, "kill", at_seconds=float(moment), settled=True) for moment in moments
        ]
        return drill, strikes


@dataclass(frozen=True, slots=True)
class Drilled:
    """One kill and the recovery from it; times in ms.  `told`: the node had said it cannot be."""

    target_s: float
    keys: str
    windows: int
    on: str
    possible: bool
    at_s: float
    target_ms: float
    predicted_ms: float
    at_worst_ms: float | None
    achieved_ms: float
    told: bool
    detect_ms: float
    restart_ms: float
    load_ms: float
    replay_ms: float
    open_windows: float | None
    extent_records: float | None
    replay_tuples: float | None
    fixed_ms: float | None
    load_us: float | None
    replay_us: float | None

    @property
    def within(self) -> bool:
        """Whether the promise was kept."""
        return self.achieved_ms <= self.target_ms

    @property
    def error(self) -> float:
        """How far the prediction was off, as a share of what it took."""
        return abs(self.predicted_ms - self.achieved_ms) / self.achieved_ms


@dataclass(frozen=True, slots=True)
class Ran:
    """A run: its drills, the CHECKs it left, the fewest that would have done, and its course."""

    case: Case
    drills: list[Drilled]
    checks: float
    fewest: int
    stretch: float
    course: Course | None = None

    @property
    def closest(self) -> float:
        """The largest share of its target that a recovery took."""
        return max((each.achieved_ms / each.target_ms for each in self.drills), default=0.0)

    @property
    def comparable(self) -> bool:
        """Whether its CHECKs can be held against the fewest possible.

        Not where the node said that the target cannot be met, nor where it left clearly fewer than
        the fewest: then the limit was not kept, and to leave few CHECKs was no merit.
        """
        told = any(each.told for each in self.drills)
        return self.case.possible and not told and self.checks >= _KEPT * self.fewest


def drills_table(runs: Iterable[Ran]) -> pa.Table:
    """Every drill of every run, as it was measured."""
    rows = [asdict(each) | {"within": each.within} for ran in runs for each in ran.drills]
    kinds = {"str": pa.string(), "bool": pa.bool_(), "int": pa.int64()}
    schema = [(each.name, kinds.get(str(each.type), pa.float64())) for each in fields(Drilled)]
    return pa.Table.from_pylist(rows, pa.schema([*schema, ("within", pa.bool_())]))


def run_case(case: Case, folder: Path, launcher: Launcher) -> Ran:
    """Run a configuration to its end; raises `WrongResults` when results are not right."""
    drill, strikes = case.drill()
    drill = replace(drill, gun=str(folder / "first-tuple-due-ms"))
    warned: list[tuple[float, bool]] = []

    def note(result: DrillResult, _read: int) -> None:
        said = bool(result.status.get(NODE, {}).get("advice"))
        if not warned or warned[-1][1] != said:
            warned.append((result.samples[-1][0], said))

    result = run_drill(drill, folder / "query", launcher, strikes=strikes, on_progress=note)
    verdict = result.verdict
    assert verdict is not None, "a drill that has run has a verdict"
    if not verdict.right:
        raise WrongResults(
            f"{case.name}: of {verdict.expected:,} results {verdict.lost} are lost, "
            f"{verdict.duplicated} duplicated, {verdict.reordered} reordered, {verdict.wrong} "
            f"wrong; the same again: seed {case.seed}"
        )
    stretch = allowed_stretch(result.nodes, case.target_s * 1e3)
    return Ran(case, _drilled(case, result, warned), checks_left(result.nodes),
               _fewest(drill, stretch), stretch, course_of(result))  # fmt: skip


def _drilled(
    case: Case, result: DrillResult, warned: Sequence[tuple[float, bool]]
) -> list[Drilled]:
    """The recoveries, in the order of the kills; a kill without a recovery is none."""
    found = []
    for blow in result.blows:
        recovered = result.recovery(blow)
        if recovered is None or recovered.predicted is None or recovered.target is None:
            continue
        told = [said for at, said in warned if at <= blow.at]
        found.append(
            _one(case, recovered, result.nodes.said(NODE, blow.at),
                 at_s=blow.at - result.first_result_at, told=bool(told and told[-1]))
        )  # fmt: skip
    return found


def _one(
    case: Case, recovered: Recovered, said: dict[str, float | None], *, at_s: float, told: bool
) -> Drilled:
    assert recovered.predicted is not None, "it was promised"
    assert recovered.target is not None, "it was promised"
    return Drilled(
        target_s=case.target_s,
        keys=case.keys,
        windows=case.windows,
        on=case.on,
        possible=case.possible,
        at_s=at_s,
        target_ms=recovered.target,
        predicted_ms=recovered.predicted,
        at_worst_ms=said.get("at_worst_ms"),
        achieved_ms=recovered.beyond_restart,
        told=told,
        detect_ms=recovered.detect,
        restart_ms=recovered.restart,
        load_ms=recovered.load,
        replay_ms=recovered.replay,
        open_windows=said.get("open_windows"),
        extent_records=said.get("extent_records"),
        replay_tuples=said.get("replay_tuples"),
        fixed_ms=said.get("fixed_ms"),
        load_us=said.get("load_us"),
        replay_us=said.get("replay_us"),
    )


# --- CHECKs --------------------------------------------------------------------------------------


def checks_left(nodes: NodeHistory) -> float:
    """CHECKs over all lives of the node.

    A node counts from its start, and tells every tenth of a second; what it left after it last
    told is taken to be as much, for the time, as before.
    """
    figures = nodes.table(0.0).to_pylist()
    total, began, last = 0.0, None, None
    changed = ended = 0.0
    for row in [each for each in figures if each["node"] == NODE] + [{"checks": None}]:
        if row["checks"] is None or (last is not None and row["checks"] < last):
            if last is not None and began is not None and changed > began:
                total += last * (ended - began) / (changed - began)
            last = began = None
        if row["checks"] is None:
            continue
        ended = row["seconds"]
        if last is None:
            began = ended
        if last != row["checks"]:
            changed = ended
        last = row["checks"]
    return total


def allowed_stretch(nodes: NodeHistory, target_ms: float) -> float:
    """How old, in positions, the controller's own rates let a footprint get.

    Over the run, the median of what is left of the target after the fixed part, at what a position
    costs to load and to replay.
    """
    table = nodes.table(0.0)
    table = table.filter((pc.field("node") == NODE) & (pc.field("replay_tuples") > 0))
    if not table.num_rows:
        return float("inf")
    seen = {name: table[name].to_numpy() for name in _LIMITS}
    records_per_position = seen["extent_records"].sum() / seen["replay_tuples"].sum()
    left_us = np.maximum(target_ms - seen["worst_fixed_ms"], 1.0) * 1e3
    per_position = seen["worst_replay_us"] + seen["worst_load_us"] * records_per_position
    return float(np.median(left_us / per_position))


def _fewest(drill: ShapedDrill, stretch: float) -> int:
    """The oracle's CHECKs for the windows of a drill."""
    keys, positions = drill.kept()
    return fewest_checks(window_lives(keys, positions, drill.window, drill.tuples), stretch)
