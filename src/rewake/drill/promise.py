"""A promised recovery time in words: q, u, T, the rates, the prediction and what is left of it.

What always holds: prediction = fixed + q x load + u x replay, with the figures that are shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewake.graph.plan.plan import NodePlan, Plan
from rewake.model.units import duration_ns
from rewake.net.nodes.calibration import calibrate, kept_rates
from rewake.net.nodes.recoveries import KeptRecovery, kept_recoveries
from rewake.recovery.promises.rates import Costs, RecoveryRates

__all__ = ["explained", "in_short", "standing"]

_NEEDED = ("extent_records", "replay_tuples", "replay_from", "predicted_ms", "target_ms",
           "margin_ms", "fixed_ms", "load_us", "replay_us")  # fmt: skip
# Of the recoveries that a query has behind it, the latest are shown.
_SHOWN = 5


def standing(said: Mapping[str, Any]) -> list[str]:
    """How a promise stands by what a node says of itself; nothing when nothing was promised."""
    if any(said.get(name) is None for name in _NEEDED):
        return []
    extent = (
        f"q {said['extent_records']:,.0f} records, u {said['replay_tuples']:,.0f} tuples, "
        f"T {said['replay_from'] - 1:,.0f}"
    )
    price = (
        f"a crash now: {said['predicted_ms']:,.0f} ms predicted, {said['target_ms']:,.0f} ms "
        f"promised, margin {said['margin_ms']:,.0f} ms"
    )
    lines = [extent, f"rates: {_rates(said)}", price]
    return [*lines, str(said["advice"])] if said.get("advice") else lines


def in_short(said: Mapping[str, Any]) -> str:
    """The same on a line, for a terminal that changes; nothing when nothing was promised."""
    if any(said.get(name) is None for name in _NEEDED):
        return ""
    return (
        f"q {_large(said['extent_records'])} u {_large(said['replay_tuples'])} "
        f"T {_large(said['replay_from'] - 1)}; {said['load_us']:.2f} us/record "
        f"{said['replay_us']:.2f} us/tuple; {said['predicted_ms']:,.0f} of "
        f"{said['target_ms']:,.0f} ms, margin {said['margin_ms']:,.0f}"
    )


def _rates(said: Mapping[str, Any]) -> str:
    return (
        f"{said['fixed_ms']:,.0f} ms + {said['load_us']:.3f} us for a record + "
        f"{said['replay_us']:.3f} us for a tuple"
    )


def _large(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


# --- of a query that is explained ----------------------------------------------------------------


def explained(plan: Plan, folder: Path | None) -> list[str]:
    """What is promised for each node and how that stands, by what is in the query's folder.

    Without a folder, or before the query's first start: by what is measured on this machine now.
    """
    promised = [node for node in plan.nodes if _target_ms(node) and node.program.stateful]
    if not promised:
        return []
    lines, costs = ["promises"], None
    for node in promised:
        kept = None if folder is None else kept_rates(folder, node.name)
        budget = node.approach.settings().get("checkpoint_budget", "5%")
        lines.append(f"  {node.name}: back within {_target_ms(node):,.0f} ms of a restart, at most "
                     f"{budget} of the time for CHECKs")  # fmt: skip
        told = [] if kept is None else standing(kept.figures)
        if kept is not None and told:
            age = max(time.time() - kept.at, 0.0)
            told = [f"as it was {age:,.0f} s ago:", *told, *_recoveries(folder, node.name)]
            lines += [f"    {line}" for line in told]
            continue
        costs = calibrate() if costs is None else costs
        lines += [f"    {line}" for line in _possible(_target_ms(node), costs)]
    return lines


def _recoveries(folder: Path | None, node: str) -> Iterator[str]:
    """What the node's latest recoveries took beyond the restart, each beside its prediction."""
    kept = [] if folder is None else kept_recoveries(folder, node)
    if kept:
        late = sum(not each.within for each in kept)
        yield f"recoveries so far: {len(kept)}, {late} too late; the latest:"
    for each in kept[-_SHOWN:]:
        yield f"  {_recovery(each)}"


def _recovery(kept: KeptRecovery) -> str:
    ago = max(time.time() - kept.at, 0.0)
    predicted = "unknown" if kept.predicted_ms is None else f"{kept.predicted_ms:,.0f} ms"
    return (
        f"{ago:,.0f} s ago: took {kept.achieved_ms:,.0f} ms, predicted {predicted}, promised "
        f"{kept.target_ms:,.0f} ms; {kept.records:,} records loaded, {kept.tuples:,} tuples "
        "replayed"
    )


def _target_ms(node: NodePlan) -> float:
    text = node.approach.settings().get("recover_within")
    return 0.0 if text is None else duration_ns(str(text)) / 1e6


def _possible(target_ms: float, costs: Costs) -> Iterator[str]:
    """What a target allows on a machine with these costs, before anything has run."""
    rates = RecoveryRates(costs)
    yield f"rates measured on this machine now: {_rates(costs.to_json())}"
    left_us = (target_ms - rates.fixed_ms) * 1e3
    if left_us <= 0:
        yield (
            f"{target_ms:,.0f} ms cannot be met here: the fixed part alone may take "
            f"{rates.fixed_ms:,.0f} ms; give recover_within more time"
        )
        return
    yield (
        f"enough to load {_large(left_us / rates.load_us)} records (an open window is at least "
        f"one) or to replay {_large(left_us / rates.replay_us)} tuples"
    )
    yield "q, u, T, prediction and margin: once it has run, with --folder"
