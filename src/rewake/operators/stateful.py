"""The one interface between stateful operators and the ways they are recovered.

An operator's state is a set of open *parts* (windows, panes, keys) that can be snapshotted and
restored independently, as columns.  A part has a slot (a small number, used again after it ends)
and an id (the position of the tuple that opened it, unique for ever).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s

# (output number, tuples); outputs without tuples are left out.
Emissions = Sequence[tuple[int, pa.RecordBatch]]

# The outputs of a step: its results, its late tuples, and what else it declares.
RESULTS_PORT, LATE_PORT, FURTHER_PORTS = 0, 1, 2

NO_SLOTS = np.zeros(0, np.int32)
NO_IDS = np.zeros(0, np.int64)


class Outcome(NamedTuple):
    """What a turn did: emitted tuples, and the parts it opened, changed and ended.

    Parts that opened and ended within the turn are neither among the opened nor the ended ones.
    `touched_slots` holds at least the slots of all parts that changed, in any order and as often as
    they did; -1, and slots of parts that have ended, mean nothing.
    """

    results: pa.RecordBatch | None
    late: pa.RecordBatch | None
    opened_slots: Int32s
    opened_ids: Int64s
    ended_ids: Int64s
    touched_slots: Int32s = NO_SLOTS
    # Tuples for further outputs of the step, by number from `FURTHER_PORTS` on.
    others: Emissions = ()
    # Open parts that tuples alone would not bring back, because where a watermark stood decided
    # something about them, and a replay may not repeat it: they leave a CHECK with this turn.
    unrepeatable_slots: Int32s = NO_SLOTS


class StoredParts(NamedTuple):
    """Parts found in a log: chosen rows of stored columns, and what is known of each.

    `ids` and `applied` (the last input position a part's stored state has seen) are in the order of
    the chosen rows of all frames; `totals` says how many rows each frame's columns have.
    """

    ids: Int64s
    applied: Int64s
    columns: list[list[Array]]
    rows: list[Array]
    totals: list[int]

    def rows_of_all(self) -> Int64s:
        """The chosen rows where the columns of all frames are one behind the other."""
        behind = np.cumsum([0, *self.totals])[:-1]
        rows: Int64s = np.concatenate([NO_IDS, *self.rows])
        rows += np.repeat(behind, [each.size for each in self.rows])
        return rows


class StatefulOperator(Protocol):
    """An operator that recovery approaches can drive."""

    output_schema: pa.Schema

    @property
    def late_tuples(self) -> int:
        """How many tuples came too late for their parts."""

    @property
    def divisible(self) -> bool:
        """Whether a stream event may be cut anywhere and mean the same.

        Not so where steps before the state leave tuples out: which positions the others have then
        depends on the whole stream event, and it must be replayed as it came.
        """

    @property
    def open_parts(self) -> int:
        """How many parts are open: N (CEC II.B)."""

    @property
    def clock(self) -> int:
        """The event-time clock, `NO_TIME` before it has started."""

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""

    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; what it opened, closed and emitted."""

    def punctuate(self, position: int, watermark: int) -> Outcome:
        """Apply a watermark that comes before the tuple at `position`, without tuples."""

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""

    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened; their state is that of no tuples."""

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts."""

    def restore(
        self, openings: StoredParts, snapshots: StoredParts, *, clock: int, late_tuples: int
    ) -> Int32s:
        """Take these parts as the open ones of a new operator; their slots, openings first."""

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""

    def end_replay(self) -> None:
        """All restored parts are up to date: from here on, `process`."""


def open_slots(operator: StatefulOperator) -> Int32s:
    """The slots of all open parts, in ascending order."""
    return np.flatnonzero(operator.opened_at >= 0).astype(np.int32)


@runtime_checkable
class Delaying(Protocol):
    """What an operator says besides whose results may be older than the time it has seen."""

    @property
    def delay(self) -> int | None:
        """How far results may be behind the clock; None: any far, until the stream ends.

        Whoever comes next is told of time only so far behind.
        """


@runtime_checkable
class Clocked(Protocol):
    """What an operator says besides that may go by the clock of the machine.

    That comes to it as input, in ticks (`StreamEvent.tick`): so it comes again when input does.
    """

    @property
    def clocked(self) -> bool:
        """Whether it does; its `clock` then is the last tick, in milliseconds since 1970."""

    @property
    def alarm(self) -> int:
        """When it must hear of time though nothing else has come."""


def by_machine_clock(operator: object) -> Clocked | None:
    """The operator, if it goes by the clock of the machine."""
    return operator if isinstance(operator, Clocked) and operator.clocked else None


class KeyedOperator(StatefulOperator, Protocol):
    """An operator each of whose parts belongs to one key: it can be divided into shards."""

    # The columns of late tuples.
    late_schema: pa.Schema

    @property
    def spec(self) -> StatefulSpec:
        """What it computes."""

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of stream events."""

    @property
    def columns_read(self) -> Sequence[str]:
        """The columns of stream events that make a difference, in the schema's order."""

    @property
    def any_order(self) -> bool:
        """Whether one key's tuples mean nothing to another's, so that only their own order counts.

        Results then come in the order in which keys do.
        """

    @property
    def short_order(self) -> str | None:
        """The key column of integers in whose order tuples and footprints take few bytes.

        None: parts take as few in the order in which they opened.
        """

    @property
    def results_of_parts(self) -> Callable[[Int32s], pa.RecordBatch] | None:
        """How the results of a turn follow from the parts it touched, in the order of their slots.

        None: they do not.
        """

    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""

    def common_clock(self, clocks: Sequence[int]) -> int:
        """The clock under which parts of shards with these clocks go on together."""


@runtime_checkable
class Foreseeing(Protocol):
    """What an operator offers besides that can say what its open parts come to so far."""

    def early(self) -> pa.RecordBatch | None:
        """The results of all open parts as they stand; they go on as if nothing was asked."""


class StatefulSpec(Protocol):
    """What a stateful step computes, as a value: part of a query, of its plan and of its logs."""

    # What it is called in plans and logs.
    kind: ClassVar[str]

    @property
    def operator_class(self) -> OperatorClass:
        """What a restart from nothing would do to its output."""

    @property
    def route_late(self) -> bool:
        """Whether late tuples are emitted on an output of their own."""

    @property
    def further_outputs(self) -> Sequence[str]:
        """Names of outputs besides results and late tuples, in the order of their ports."""

    def keys(self, port: int) -> tuple[str, ...]:
        """The columns by which an input is divided among shards; none: it cannot be divided."""

    def operator(self, *schemas: pa.Schema) -> StatefulOperator:
        """A new operator for inputs of these columns; raises when they do not fit."""

    def further_schema(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """The columns of one of the further outputs."""

    def describe(self) -> dict[str, Any]:
        """All that decides its results but code, as JSON values."""

    def code(self) -> Sequence[Callable[..., Any]]:
        """The user's functions, whose code decides its results, too."""

    def words(self) -> Iterable[str]:
        """What it does, in a few short lines for people."""

    def rehearsed(self) -> StatefulSpec:
        """The same without the user's functions: it may be given tuples that do not exist.

        Compiled functions of aggregates stay: they are arithmetic, and compiling takes time.
        """


@runtime_checkable
class TypedState(Protocol):
    """What a spec says besides whose parts keep columns that a user has named."""

    @property
    def state_schema(self) -> pa.Schema:
        """Those columns: without them nobody else could read the state."""
