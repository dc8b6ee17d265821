"""Late tuples of a query by what is in its folder, also while it does not run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewake.graph.plan.plan import NodePlan, Plan
from rewake.log.files.layout import DESCRIPTOR
from rewake.node.late_watch import DIVERTED, DROPPED, KEPT
from rewake.node.lateness import fate_of_late
from rewake.recovery.approach import Kept
from rewake.stores import open_log_reader

__all__ = ["late_in_folder", "late_in_short"]

_WORDS = {
    DROPPED: "dropped",
    DIVERTED: "on an output of their own",
    KEPT: "taken all the same",
}


def late_in_folder(plan: Plan, folder: Path | None) -> list[str]:
    """By node that goes by event time: its late tuples so far, and what became of them."""
    lines = []
    for node in plan.nodes:
        fate = fate_of_late(node.program)
        late = None if fate is None or folder is None else _late_in_log(node, folder)
        if late is not None and fate is not None:
            lines.append(f"  {node.name}: {late:,}" + (f", {_WORDS[fate]}" if late else ""))
    return ["late tuples so far", *lines] if lines else []


def _late_in_log(node: NodePlan, folder: Path) -> int | None:
    """What the newest frame of a node's log says; None: there is no log yet."""
    path = folder / "nodes" / node.name
    if node.kept is not Kept.IN_LOG or not (path / DESCRIPTOR).is_file():
        return None
    with open_log_reader(path) as reader:
        newest = next(reader.frames_backwards(), None)
    if newest is None:
        return 0
    return node.approach.late_tuples_in(newest)


def late_in_short(status: Mapping[str, Mapping[str, Any]]) -> str:
    """Dropped tuples of all nodes, for a line that changes; nothing while there are none."""
    dropped = sum(int(said.get(DROPPED, 0)) for said in status.values())
    return f"{dropped:,} late dropped" if dropped else ""
