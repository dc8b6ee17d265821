"""CEC III.A: the cost-benefit policy, which the paper leaves as ongoing work, against targets.

All policies see the same stream and the same crash.  What a record to load, a tuple to replay and a
CHECK cost is measured first; `patience` says how many microseconds of normal operation one of
recovery is worth.  It is given in multiples of that at which a CHECK of a window that frees one
record and one tuple is worth its price.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.connectors.item_stream import ItemStream
from rewake.net.nodes.calibration import calibrate
from rewake.recovery.policies.cost_benefit import CostBenefitPolicy
from rewake.recovery.policies.policy import CheckpointPolicy, OpenOnly
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
from rewake_lab.reproduce.experiment import Experiment, Finding, Plot, Row, Setting, where

EXTENT, REPLAY, BENEFIT, NONE = "target Q", "target U", "cost-benefit", "no CHECKs"
_PERIOD_MS, _INTERVAL_MS = 100, 5
_CHECK_COST = CHECK_COSTS["a tenth of it"]
ALIKE, RARE = "items alike", "a tenth rare"
_STREAMS = (ALIKE, RARE)
# In multiples of the open windows, tuples of each item, and multiples of the break-even patience.
EXTENTS, REPLAYS, PATIENCES = (1, 2, 4, 8), (1.25, 2.5, 5, 10), (0.25, 0.5, 1, 2, 4)


class _Asked(NamedTuple):
    """A policy, and what it was told."""

    kind: str
    told: float
    policy: CheckpointPolicy


def sizes_of(setting: Setting) -> Sizes:
    """Smaller than in Fig. 6 and 7: there are many policies to run."""
    return Sizes(PAPER_ITEMS // 4, 92) if setting.full else Sizes(PAPER_ITEMS // 40, 37)


def rows(setting: Setting) -> Iterator[Row]:
    """Every policy on both streams; the run without CHECKs comes first and tells the costs."""
    size = sizes_of(setting)
    check_us = calibrate().check_us
    for name in _STREAMS:
        rare = size.items // 10 if name == RARE else 0
        case = Case(ItemStream(setting.seed, size.items, rare), size)
        upstream = setting.folder / f"upstream-{_STREAMS.index(name)}"
        write_upstream(upstream, case.stream, size)
        for row in _policies_in_turn(setting.folder, upstream, case, check_us):
            yield {"stream": name, **row}


def _policies_in_turn(folder: Path, upstream: Path, case: Case, check_us: float) -> Iterator[Row]:
    row = run_case(folder / "operator", upstream, case, OpenOnly())
    costs = {
        "load_us": float(row["load_s"]) * 1e6 / float(row["extent_records"]),
        "replay_us": float(row["replay_s"]) * 1e6 / float(row["replay_tuples"]),
        "check_us": check_us,
    }
    yield {"policy": NONE, "told": 0.0, **row, **costs}
    for kind, told, policy in _policies(case.size, costs):
        row = run_case(folder / "operator", upstream, case, policy)
        yield {"policy": kind, "told": float(told), **row, **costs}


def _policies(size: Sizes, costs: dict[str, float]) -> Iterator[_Asked]:
    for extent in EXTENTS:
        yield _Asked(EXTENT, extent, _targets(size, records=extent * size.open_windows))
    for tuples in REPLAYS:
        yield _Asked(REPLAY, tuples, _targets(size, tuples=int(tuples * size.items)))
    even = costs["check_us"] / (costs["load_us"] + costs["replay_us"])
    for times in PATIENCES:
        policy = CostBenefitPolicy(
            **costs, patience=times * even, period_ms=_PERIOD_MS, at_most=_most_checks(size)
        )
        yield _Asked(BENEFIT, times, policy)


def _check_cost_us(size: Sizes) -> float:
    return _CHECK_COST * 1e6 / size.rate


def _most_checks(size: Sizes) -> int:
    """As many as targets may take within an interval."""
    return int(_INTERVAL_MS * 1e3 / _check_cost_us(size))


def _targets(size: Sizes, records: int = NO_TARGET, tuples: int = NO_TARGET) -> TargetsPolicy:
    return TargetsPolicy(
        records=records,
        tuples=tuples,
        interval_ms=_INTERVAL_MS,
        period_ms=_PERIOD_MS,
        check_us=_check_cost_us(size),
    )


def scaling(setting: Setting) -> str:
    """What was chosen, there being nothing to follow."""
    size = sizes_of(setting)
    return (
        f"{size.items:,} items alike, or a tenth of them rare (one purchase in 256 of all), in "
        f"windows of 10, crash at tuple {size.tuples:,}; every policy may take "
        f"{_most_checks(size):,} CHECKs every {_PERIOD_MS} ms of the stream's time; costs of "
        "records and tuples as measured in the run without CHECKs"
    )


# --- what is shown -------------------------------------------------------------------------------


def _with_recovery(table: pa.Table) -> pa.Table:
    """With what the crash cost: as it was measured, and at the costs that the policy knew."""
    columns = {name: table[name].to_numpy() for name in table.column_names if name not in _WORDS}
    measured = columns["load_s"] + columns["replay_s"]
    reckoned = (
        columns["extent_records"] * columns["load_us"]
        + columns["replay_tuples"] * columns["replay_us"]
    ) / 1e6
    with_measured = table.append_column("recovery_s", pa.array(measured))
    return with_measured.append_column("reckoned_s", pa.array(reckoned))


_WORDS = ("stream", "policy")


def against(table: pa.Table, stream: str, kind: str) -> list[float]:
    """Recovery under cost-benefit, over that under targets with as many CHECKs; sorted.

    Between two targets: on a line between the logarithms, because the curve is bent.  Beyond the
    targets that took most and fewest CHECKs nothing is known.
    """
    shown = _with_recovery(where(table, stream=stream))
    known = where(shown, policy=kind).sort_by("checks").to_pylist()
    known = [row for row in known if row["checks"]]
    if not known:
        return []
    checks, reckoned = (np.log([row[name] for row in known]) for name in ("checks", "reckoned_s"))
    return sorted(
        row["reckoned_s"] / float(np.exp(np.interp(np.log(row["checks"]), checks, reckoned)))
        for row in where(shown, policy=BENEFIT).to_pylist()
        if known[0]["checks"] <= row["checks"] <= known[-1]["checks"]
    )


def findings(table: pa.Table) -> list[Finding]:
    """CHECKs and recovery of each policy at its tightest and loosest."""
    shown, found = _with_recovery(table), []
    for stream in _STREAMS:
        for kind in (NONE, EXTENT, REPLAY, BENEFIT):
            rows = where(shown, stream=stream, policy=kind).sort_by("told").to_pylist()
            for row in rows if len(rows) == 1 else (rows[0], rows[-1]):
                name = f"{stream}, {kind}" + (f" = {row['told']:g}" if row["told"] else "")
                found += [
                    Finding(f"{name}: CHECKs per result", row["checks"] / row["results"], "ratio"),
                    Finding(f"{name}: load and replay", row["recovery_s"], "s"),
                ]
    return found


def plots(table: pa.Table) -> list[Plot]:
    """What a crash costs against CHECKs, for each stream; one replay in itself tells too little."""
    shown = _with_recovery(table)
    return [
        Plot(f"Recovery against CHECKs: {stream}",
             where(shown, stream=stream).sort_by("checks"),
             x="checks", y="reckoned_s", x_title="CHECKs",
             y_title="seconds, at measured costs", series="policy")
        for stream in _STREAMS
    ]  # fmt: skip


def _compared(table: pa.Table, stream: str) -> str:
    words = []
    for kind in (EXTENT, REPLAY):
        found = against(table, stream, kind)
        if found:
            words.append(f"{found[0]:.2f} to {found[-1]:.2f} times that under {kind}")
        else:
            words.append(f"nothing to compare with under {kind}")
    return f"{stream}: {' and '.join(words)}"


def _worth(table: pa.Table) -> str:
    """In words, how often cost-benefit was the better choice."""
    found = [
        ratio
        for stream in _STREAMS
        for kind in (EXTENT, REPLAY)
        for ratio in against(table, stream, kind)
    ]
    better = sum(ratio < 1 for ratio in found)
    return f"It is the cheaper one in {better} of {len(found)} comparisons"


def _steps(table: pa.Table, stream: str) -> str:
    chosen = where(table, stream=stream, policy=BENEFIT).sort_by("told").to_pylist()
    return ", ".join(f"{row['checks'] / row['results']:.2f}" for row in chosen)


def verdict(table: pa.Table) -> str:
    """What the policies are worth; the paper has no figures for one of them."""
    words = "; ".join(_compared(table, stream) for stream in _STREAMS)
    steps = "; ".join(f"{_steps(table, stream)} ({stream})" for stream in _STREAMS)
    return (
        "The paper calls a cost-benefit formula straightforward, and its evaluation ongoing work; "
        "there are no figures to compare with. With as many CHECKs, recovery under cost-benefit "
        f"(records and tuples at measured costs) is {words}. {_worth(table)}. Its CHECKs per "
        f"result at {', '.join(f'{each:g}' for each in PATIENCES)} times the break-even patience: "
        f"{steps}. Cost-benefit bounds neither what is to be loaded nor what is to be replayed; a "
        "target does, as far as it can be kept."
    )


EXPERIMENT = Experiment(rows, scaling, findings, plots, verdict)
