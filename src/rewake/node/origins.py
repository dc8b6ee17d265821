"""Where a node's input comes from: which log, and under which epochs what it has was written.

A node that keeps something (a log, or a sink's position) remembers for every channel the lineage of
the log that it reads, durably before it takes the first tuple of a lineage that is new to it.  When
an upstream says where it begins, it says its lineage, too; then the two are compared at the last
position that the node has consumed.  If another epoch wrote what is there, or nothing is there, the
upstream has lost what this node has: no restart cures that, and going on would lose tuples, or
repeat some, without a word.

A node that only passes tuples on has the positions of its own upstream, and passes its lineage on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewake.graph.plan import NodePlan
from rewake.log.layout import MAX_COUNT
from rewake.log.lineage import WHAT_TO_DO, Lineage, Step
from rewake.model.errors import DamagedData, HistoryMismatch


class Origins:
    """What a node knows of the logs that its channels come from."""

    def __init__(self, plan: NodePlan, state: Mapping[str, Any] | None = None) -> None:
        self._plan = plan
        self._known: dict[int, Lineage] = {}
        for channel, written in (state or {}).get("channels", {}).items():
            self._known[int(channel)] = read_lineage(written, plan.name)

    @property
    def kept(self) -> bool:
        """Whether the node has anything that must fit to its upstreams."""
        return self._plan.logs or self._plan.sink is not None

    def told(self, channel: int, lineage: Lineage, reached: int) -> None:
        """An upstream says its lineage, when the channel was consumed up to `reached`.

        HistoryMismatch when the node cannot have consumed that.
        """
        known = self._known.get(channel)
        if reached:
            upstream = self._plan.inputs[channel].upstream or ""
            check_origin(self._plan.name, upstream, known, lineage, reached)
        self._known[channel] = (
            lineage if known is None or not reached else known.followed_by(lineage)
        )

    def state(self) -> dict[str, Any]:
        """What must survive the process."""
        return {
            "channels": {
                str(channel): {"log": each.log_id, "steps": [list(step) for step in each.steps]}
                for channel, each in sorted(self._known.items())
            }
        }


def check_origin(
    consumer: str, upstream: str, known: Lineage | None, said: Lineage, reached: int
) -> None:
    """Raise HistoryMismatch unless what was consumed of `known` up to `reached` is in `said`."""
    both = f"{consumer!r} has consumed {upstream!r} up to position {reached}"
    if known is None:
        raise HistoryMismatch(
            f"{both}, but nothing in this folder says from which log; {WHAT_TO_DO}"
        )
    if known.log_id != said.log_id:
        raise HistoryMismatch(
            f"{both} from log {known.log_id:x}, but the log of {upstream!r} is now "
            f"{said.log_id:x}: it was replaced, or made anew; {WHAT_TO_DO}"
        )
    if reached > said.end:
        raise HistoryMismatch(
            f"{both}, but the log of {upstream!r} ends at {said.end}: it is older than what was "
            f"made from it; {WHAT_TO_DO}"
        )
    before, now = known.writer(reached), said.writer(reached)
    if before is not None and now is not None and before.who != now.who:
        raise HistoryMismatch(
            f"{both}, of which the last was written by epoch {before.epoch}; in the log of "
            f"{upstream!r} epoch {now.epoch} wrote another tuple there: an older copy was "
            f"continued; {WHAT_TO_DO}"
        )


def read_lineage(written: Any, node: str) -> Lineage:
    """The lineage of one channel, as `Origins.state` has it."""
    try:
        steps = tuple(Step(*each) for each in written["steps"])
        numbers = [written["log"] - 1, *(number for step in steps for number in step)]
        if any(type(number) is not int or not 0 <= number <= MAX_COUNT * 4 for number in numbers):
            raise ValueError("numbers that cannot be")
        return Lineage(written["log"], steps)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedData(
            f"what node {node!r} remembers of its upstreams is damaged ({error}); {WHAT_TO_DO}"
        ) from error
