"""Where a node's input comes from: which log, and under which epochs what it has was written.

A node that keeps something (a log, a bookmark, or a sink's position) remembers for every channel
the lineage of the log that it reads, durably before it takes the first tuple of a lineage that is
new to it.  When an upstream says where it begins, it says its lineage, too; then the two are
compared at the last position that the node has consumed.  If another epoch wrote what is there, or
nothing is there, the upstream has lost what this node has: no restart cures that, and going on
would lose tuples, or repeat some, without a word.

A sink keeps the same beside its tuples, if it can: then it is told apart whichever folder writes to
it, and what it says counts more than what the folder remembers.

A node that only passes tuples on has the positions of its own upstream, and passes its lineage on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rewake.graph.plan.plan import NodePlan
from rewake.log.files.layout import MAX_COUNT
from rewake.log.files.lineage import WHAT_TO_DO, Lineage, Step
from rewake.model.errors import DamagedData, HistoryMismatch
from rewake.node.commands import Remember
from rewake.recovery.approach import Keeper, Kept


@dataclass(frozen=True, slots=True)
class SinkOrigins:
    """What a sink's node finds when it begins: where the sink is, which folder the query runs in.

    `state` is what the sink itself keeps of where its tuples are from; None when it does not.
    """

    where: str = ""
    here: str = ""
    state: Mapping[str, Any] | None = field(default=None)

    @property
    def writer(self) -> str:
        """Who wrote to the sink, for people."""
        folder = (self.state or {}).get("folder")
        return f" (written by the query in {folder})" if isinstance(folder, str) else ""


# A sink that says nothing of itself.
SILENT: Final = SinkOrigins()


class Origins:
    """What a node knows of the logs that its channels come from."""

    def __init__(self, plan: NodePlan, state: Mapping[str, Any] | None = None) -> None:
        self._plan = plan
        self._known = _lineages(state, plan.name)
        self._sink = SILENT
        # Channels of which the sink has something, and whose upstream has not said its lineage yet.
        self._awaited: set[int] = set()

    @property
    def kept(self) -> bool:
        """Whether the node has anything that must fit to its upstreams."""
        plan = self._plan
        bookmarked = plan.kept is Kept.IN_QUEUE and plan.approach.keeper is Keeper.COORDINATOR
        return plan.kept is Kept.IN_LOG or plan.sink is not None or bookmarked

    @property
    def awaited(self) -> bool:
        """Whether it is not known yet if this is the query that the sink belongs to."""
        return bool(self._awaited)

    def found(self, sink: SinkOrigins, committed: Sequence[int]) -> None:
        """A sink was looked at: it has consumed its channels up to `committed`.

        HistoryMismatch when this folder already knows that its logs are others.
        """
        self._sink = sink
        for channel, said in _lineages(sink.state, self._plan.name).items():
            if channel >= len(committed) or not committed[channel]:
                continue
            here = self._known.get(channel)
            if here is not None and here.log_id != said.log_id:
                self._check(channel, said, here, committed[channel])
            self._known[channel] = said
            self._awaited.add(channel)

    def told(self, channel: int, lineage: Lineage, reached: int) -> list[Remember]:
        """An upstream says its lineage, when the channel was consumed up to `reached`.

        What to keep before anything is taken.  HistoryMismatch when the node cannot have consumed
        that.
        """
        # Who keeps nothing has taken all it has from this very log, since it was started.
        known = self._known.get(channel) if self.kept else lineage
        if reached:
            self._check(channel, known, lineage, reached)
        self._known[channel] = (
            lineage if known is None or not reached else known.followed_by(lineage)
        )
        self._awaited.discard(channel)
        return [Remember(self.state())] if self.kept else []

    def _check(self, channel: int, known: Lineage | None, said: Lineage, reached: int) -> None:
        upstream = self._plan.inputs[channel].upstream or ""
        if self._plan.sink is None:
            check_origin(self._plan.name, upstream, known, said, reached)
        else:
            _check_sink(self._plan.name, upstream, self._sink, known, said, reached)

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
    fault = _misfit(upstream, known, said, reached) or _forked(upstream, known, said)
    if fault:
        raise HistoryMismatch(
            f"{consumer!r} has consumed {upstream!r} up to position {reached}{fault}; {WHAT_TO_DO}"
        )


def _check_sink(
    name: str, upstream: str, sink: SinkOrigins, known: Lineage | None, said: Lineage, reached: int
) -> None:
    """The same for a sink, which no backup of the query's folder brings back."""
    fault = _misfit(upstream, known, said, reached)
    if not fault:
        return
    if known is not None and known.log_id != said.log_id:
        what_to_do = (
            "give this query a sink of its own, or run the query in the folder that the sink "
            "belongs to"
        )
    else:
        what_to_do = (
            "put a copy of the sink in its place that is of the time of the folder or earlier, "
            "restore a copy of the folder that is as new as the sink, or give the query an empty "
            "sink, which is filled from the log"
        )
    raise HistoryMismatch(
        f"the sink {name!r}{sink.where and f' in {sink.where}'} has consumed {upstream!r} up to "
        f"position {reached}{sink.writer}{fault}{sink.here and f' (this folder is {sink.here})'}; "
        f"{what_to_do}"
    )


def _forked(upstream: str, known: Lineage | None, said: Lineage) -> str:
    """Why `said` goes on differently than `known`; empty when it does not.

    Nothing of that may have been consumed.  But what is remembered would be overwritten, and then
    the log that it was remembered of would not fit any more.
    """
    tags = {step.epoch: step.tag for step in (known.steps if known is not None else ())}
    for step in said.steps:
        if tags.get(step.epoch, step.tag) != step.tag:
            return (
                f", and knows another writer of epoch {step.epoch} than the log of {upstream!r} "
                "has: that is an older copy, or what is remembered (`origins`) is of another time"
            )
    return ""


def _misfit(upstream: str, known: Lineage | None, said: Lineage, reached: int) -> str:
    """Why what was consumed of `known` up to `reached` is not in `said`; empty when it is."""
    if known is None:
        return ", but nothing in this folder says from which log"
    if known.log_id != said.log_id:
        return (
            f" from log {known.log_id:x}, but the log behind {upstream!r} is {said.log_id:x}: it "
            "is another query's, or was replaced or made anew"
        )
    if reached > said.end:
        return (
            f", but the log behind {upstream!r} ends at {said.end}: it is older than what was "
            "made from it, or went back"
        )
    before, now = known.writer(reached), said.writer(reached)
    if before is not None and now is not None and before.who != now.who:
        return (
            f", of which the last was written by epoch {before.epoch}; in the log behind "
            f"{upstream!r} epoch {now.epoch} wrote another tuple there: the log went back, or an "
            "older copy was continued"
        )
    return ""


def _lineages(state: Mapping[str, Any] | None, node: str) -> dict[int, Lineage]:
    try:
        channels = {int(key): each for key, each in (state or {}).get("channels", {}).items()}
    except (AttributeError, ValueError) as error:
        raise _damaged(node, error) from error
    return {channel: read_lineage(each, node) for channel, each in channels.items()}


def read_lineage(written: Any, node: str) -> Lineage:
    """The lineage of one channel, as `Origins.state` has it."""
    try:
        steps = tuple(Step(*each) for each in written["steps"])
        numbers = [written["log"] - 1, *(number for step in steps for number in step)]
        if any(type(number) is not int or not 0 <= number <= MAX_COUNT * 4 for number in numbers):
            raise ValueError("numbers that cannot be")
        return Lineage(written["log"], steps)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(node, error) from error


def _damaged(node: str, error: Exception) -> DamagedData:
    return DamagedData(
        f"what node {node!r} remembers of its upstreams is damaged ({error}); {WHAT_TO_DO}"
    )
