"""A stateful operator behind steps without state, which work on whole stream events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.stateful import NO_SLOTS, Outcome, StatefulOperator, StoredParts
from rewake.operators.stateless import StatelessStep, apply_steps, one_to_one

__all__ = ["SteppedOperator", "check_room"]


def check_room(tuples: int, covered: int, steps: Sequence[StatelessStep]) -> None:
    """Refuse more tuples than there are positions for them."""
    if tuples > covered:
        names = ", ".join(repr(step.name) for step in steps)
        raise UsageError(
            f"the steps {names} made {tuples} tuples of a stream event of {covered} positions; a "
            "step that multiplies tuples must be in a fragment that logs its output: keep it as a "
            "stream of its own, or put it behind the aggregate"
        )


class SteppedOperator(StatefulOperator):
    """`inner` behind steps, whose tuples get the last of their stream event's positions."""

    def __init__(
        self, steps: Sequence[StatelessStep], inner: StatefulOperator, schema: pa.Schema
    ) -> None:
        self.inner = inner
        super().__init__(schema)
        self.output_schema = inner.output_schema
        self._steps = tuple(steps)
        self._one_to_one = one_to_one(steps)

    def _stepped(self, event: StreamEvent) -> StreamEvent:
        self.check_schema(event)
        batch = apply_steps(self._steps, event.batch)
        check_room(batch.num_rows, event.end - event.start, self._steps)
        return event.holding(batch)

    def process(self, event: StreamEvent) -> Outcome:
        """Apply the steps, then the operator."""
        return self.inner.process(self._stepped(event))

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        return self.inner.replay(self._stepped(event))

    @property
    def divisible(self) -> bool:
        """Whether each tuple keeps its position, and the operator does not mind."""
        return self._one_to_one and self.inner.divisible

    # --- the rest is the operator's own ------------------------------------------------------

    @property
    def late_tuples(self) -> int:
        """How many tuples came too late."""
        return self.inner.late_tuples

    @late_tuples.setter
    def late_tuples(self, count: int) -> None:
        self.inner.late_tuples = count

    @property
    def delay(self) -> int | None:
        """How far its results may be behind the clock."""
        return self.inner.delay

    @property
    def clocked(self) -> bool:
        """Whether it goes by the clock of the machine."""
        return self.inner.clocked

    @property
    def alarm(self) -> int:
        """When it must hear of time."""
        return self.inner.alarm

    @property
    def open_parts(self) -> int:
        """How many parts are open: N."""
        return self.inner.open_parts

    @property
    def clock(self) -> int:
        """The event-time clock."""
        return self.inner.clock

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self.inner.opened_at

    def early(self) -> pa.RecordBatch | None:
        """What its open parts come to so far, if it can say."""
        return self.inner.early()

    def punctuate(self, position: int, watermark: int) -> Outcome:
        """Apply a watermark that comes before the tuple at `position`, without tuples."""
        return self.inner.punctuate(position, watermark)

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self.inner.ids_of(slots)

    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened."""
        return self.inner.opening_columns(slots)

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts."""
        return self.inner.snapshot_columns(slots)

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        return self.inner.restore(openings, snapshots, clock=clock, late_tuples=self.late_tuples)

    def _finish_replay(self) -> Array:
        self.inner.end_replay()
        return NO_SLOTS
