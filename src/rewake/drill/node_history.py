"""What nodes said of themselves while a query ran: what a crash would have cost at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

# As often as a chart can show; nodes tell about as often.
_EVERY_SECONDS = 0.05
_FIGURES = (
    "open_windows", "extent_records", "replay_tuples", "checks", "predicted_ms", "target_ms",
    "replay_from", "margin_ms", "at_worst_ms", "fixed_ms", "load_us", "replay_us",
    "worst_fixed_ms", "worst_load_us", "worst_replay_us", "late_tuples", "late_dropped",
)  # fmt: skip


class NodeSample(NamedTuple):
    """A node's figures at a moment; all None while it does not run, or where it has none."""

    at: float
    node: str
    figures: tuple[float | None, ...]


class NodeHistory:
    """The samples of a run, in the order of time.

    What always holds: a node that has no state is not in it, and two neighbouring samples of a node
    differ, or are at least as far apart as the pace of sampling.
    """

    def __init__(self) -> None:
        self.samples: list[NodeSample] = []
        self._last: dict[str, NodeSample] = {}

    def note(self, now: float, status: Mapping[str, Mapping[str, Any]]) -> None:
        """Add what nodes say now."""
        for node, said in status.items():
            if "extent_records" not in said:
                continue
            # What is known of a node that is down is old.
            known = said if said.get("running", True) else {}
            sample = NodeSample(now, node, tuple(known.get(name) for name in _FIGURES))
            last = self._last.get(node)
            went = last is None or (last.figures[0] is None) != (sample.figures[0] is None)
            if went or (last is not None and now >= last.at + _EVERY_SECONDS):
                self._last[node] = sample
                self.samples.append(sample)

    def said(self, node: str, at: float) -> dict[str, float | None]:
        """The figures that a node last gave before a moment, while it ran; empty: none."""
        for sample in reversed(self.samples):
            if sample.node == node and sample.at <= at and sample.figures[0] is not None:
                return dict(zip(_FIGURES, sample.figures, strict=True))
        return {}

    def table(self, origin: float) -> pa.Table:
        """The samples as columns, `seconds` counted from the origin."""
        columns: dict[str, Any] = {
            "seconds": pa.array(
                [round(each.at - origin, 3) for each in self.samples], pa.float64()
            ),
            "node": pa.array([each.node for each in self.samples], pa.string()),
        }
        for place, name in enumerate(_FIGURES):
            figures = [each.figures[place] for each in self.samples]
            columns[name] = pa.array(
                [None if each is None else float(each) for each in figures], pa.float64()
            )
        return pa.table(columns)
