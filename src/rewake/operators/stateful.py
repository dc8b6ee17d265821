"""The one interface between stateful operators and the ways they are recovered.

An operator's state is a set of open *parts* (windows, panes, keys) that can be snapshotted and
restored independently, as columns.  A part has a slot (a small number, used again after it ends)
and an id (the position of the tuple that opened it, unique for ever).

What most operators say alike is said here, so an operator has only what is its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.errors import ReplayMismatch, SchemaMismatch, UsageError
from rewake.model.stream_event import END_OF_TIME, StreamEvent, no_tuples
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.columns.plain import plain_schema
from rewake.operators.columns.values import check_clocks
from rewake.operators.dead_letters import DEAD, dead_schema, diverts

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


class StatefulOperator(ABC):
    """An operator that recovery approaches can drive.

    `schemas` are the columns of its inputs, as they come.
    """

    output_schema: pa.Schema

    def __init__(self, *schemas: pa.Schema) -> None:
        self.schemas = list(schemas)
        # How many tuples came too late for their parts.
        self.late_tuples = 0
        # While replaying, by slot: the last position a restored part has seen.
        self._applied = NO_IDS

    # --- what the host may know --------------------------------------------------------------

    @property
    def divisible(self) -> bool:
        """Whether a stream event may be cut anywhere and mean the same.

        Not so where steps before the state leave tuples out: which positions the others have then
        depends on the whole stream event, and it must be replayed as it came.
        """
        return True

    @property
    def delay(self) -> int | None:
        """How far results may be behind the clock; None: any far, until the stream ends.

        Whoever comes next is told of time only so far behind.
        """
        return 0

    @property
    def clocked(self) -> bool:
        """Whether it goes by the clock of the machine, which comes as input (`StreamEvent.tick`).

        Its `clock` then is the last tick, in milliseconds since 1970.
        """
        return False

    @property
    def alarm(self) -> int:
        """When it must hear of the machine's time though nothing else has come."""
        return END_OF_TIME

    def early(self) -> pa.RecordBatch | None:
        """The results of all open parts as they stand; they go on as if nothing was asked."""
        raise UsageError("only windows that are still open have early results")

    @property
    @abstractmethod
    def open_parts(self) -> int:
        """How many parts are open: N (CEC II.B)."""

    @property
    @abstractmethod
    def clock(self) -> int:
        """The event-time clock, `NO_TIME` before it has started."""

    @property
    @abstractmethod
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self.opened_at[slots]

    # --- turns -------------------------------------------------------------------------------

    @abstractmethod
    def process(self, event: StreamEvent) -> Outcome:
        """Apply a stream event; what it opened, closed and emitted."""

    def punctuate(self, position: int, watermark: int) -> Outcome:
        """Apply a watermark that comes before the tuple at `position`, without tuples."""
        return self.process(StreamEvent(position, no_tuples(self.schemas[0]), watermark))

    def check_schema(self, event: StreamEvent, what: str = "the operator") -> None:
        """Refuse a stream event of other columns."""
        schema, expected = event.batch.schema, self.schemas[event.port]
        if schema is not expected and not schema.equals(expected):
            raise SchemaMismatch(
                f"the stream event at position {event.position} has columns {_described(schema)}, "
                f"but {what} was built for {_described(expected)}"
            )
        # Equal schemas need not be compared again while batches share one.
        self.schemas[event.port] = schema

    # --- footprints --------------------------------------------------------------------------

    @abstractmethod
    def opening_columns(self, slots: Array) -> list[Array]:
        """What identifies parts that have just opened; their state is that of no tuples."""

    @abstractmethod
    def snapshot_columns(self, slots: Array) -> list[Array]:
        """The whole state of parts."""

    # --- recovery ----------------------------------------------------------------------------

    def restore(
        self, openings: StoredParts, snapshots: StoredParts, *, clock: int, late_tuples: int
    ) -> Int32s:
        """Take these parts as the open ones of a new operator; their slots, openings first."""
        assert self.open_parts == 0, "only a new operator can be restored"
        check_clocks(clock)
        self.late_tuples = late_tuples
        slots = self._take_back(openings, snapshots, clock)
        self._applied = np.zeros(self.opened_at.size, np.int64)
        self._applied[slots] = np.concatenate([openings.applied, snapshots.applied])
        return slots

    @abstractmethod
    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """As `restore`, which has checked the clock and takes over what all operators know."""

    @abstractmethod
    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""

    def end_replay(self) -> None:
        """All restored parts are up to date: from here on, `process`."""
        wrong = self._finish_replay()
        self._applied = NO_IDS
        if wrong.size:
            raise ReplayMismatch(
                f"{wrong.size} open parts do not hold what the log says they must, the first of "
                f"them opened by the tuple at position {int(self.ids_of(wrong).min())}: the input "
                "that was replayed is not the input the log was written from; replay the original "
                "stream, in its order"
            )

    @abstractmethod
    def _finish_replay(self) -> Array:
        """Do what is left to do; the slots of parts that cannot be right."""


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema) or "none"


def open_slots(operator: StatefulOperator) -> Int32s:
    """The slots of all open parts, in ascending order."""
    return np.flatnonzero(operator.opened_at >= 0).astype(np.int32)


class KeyedOperator(StatefulOperator):
    """An operator each of whose parts belongs to one key: it can be divided into shards."""

    # What it computes.
    spec: StatefulSpec

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        # The columns of late tuples.
        self.late_schema = plain_schema(schema)

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of stream events."""
        return self.schemas[0]

    @property
    def columns_read(self) -> Sequence[str]:
        """The columns of stream events that make a difference, in the schema's order."""
        return list(self.input_schema.names)

    @property
    def any_order(self) -> bool:
        """Whether one key's tuples mean nothing to another's, so that only their own order counts.

        Results then come in the order in which keys do.
        """
        return False

    @property
    def short_order(self) -> str | None:
        """The key column of integers in whose order tuples and footprints take few bytes.

        None: parts take as few in the order in which they opened.
        """
        return None

    @property
    def results_of_parts(self) -> Callable[[Int32s], pa.RecordBatch] | None:
        """How the results of a turn follow from the parts it touched, in the order of their slots.

        None: they do not.
        """
        return None

    @abstractmethod
    def keys_in(self, slots: Array) -> list[pa.Array]:
        """The keys of open parts, a column for each key column."""

    @abstractmethod
    def common_clock(self, clocks: Sequence[int]) -> int:
        """The clock under which parts of shards with these clocks go on together."""


class StatefulSpec(ABC):
    """What a stateful step computes, as a value: part of a query, of its plan and of its logs.

    A spec is a frozen dataclass.
    """

    # What it is called in plans and logs.
    kind: ClassVar[str]

    @property
    @abstractmethod
    def operator_class(self) -> OperatorClass:
        """What a restart from nothing would do to its output."""

    @property
    def route_late(self) -> bool:
        """Whether late tuples are emitted on an output of their own."""
        return False

    @property
    def on_error(self) -> str:
        """What becomes of tuples that a function fails for: "stop", or "divert"."""
        return "stop"

    @property
    def further_outputs(self) -> Sequence[str]:
        """Names of outputs besides results and late tuples, in the order of their ports."""
        return (DEAD,) if diverts(self.on_error) else ()

    def further_schema(self, output: str, *schemas: pa.Schema) -> pa.Schema:
        """The columns of one of the further outputs."""
        if output not in self.further_outputs:
            have = ", ".join(map(repr, self.further_outputs)) or "none but its results"
            raise UsageError(f"this {self.kind} has no output {output!r}; it has {have}")
        return self._schema_of(output, *schemas)

    def _schema_of(self, output: str, *schemas: pa.Schema) -> pa.Schema:  # noqa: ARG002
        """The same of an output that there is: failing tuples with the error's text."""
        return dead_schema(plain_schema(schemas[0]))

    @property
    def state_schema(self) -> pa.Schema | None:
        """The columns of a part's state that a user has named: nobody else could read them."""
        return None

    @abstractmethod
    def keys(self, port: int) -> tuple[str, ...]:
        """The columns by which an input is divided among shards; none: it cannot be divided."""

    @abstractmethod
    def operator(self, *schemas: pa.Schema) -> StatefulOperator:
        """A new operator for inputs of these columns; raises when they do not fit."""

    def describe(self) -> dict[str, Any]:
        """All that decides its results but code, as JSON values; what is as usual is left out."""
        described = {}
        for each in fields(self):  # type: ignore[arg-type]  # a dataclass
            value = getattr(self, each.name)
            if each.default is MISSING or value != each.default:
                described[each.name] = as_json(value)
        return described

    def code(self) -> Sequence[Callable[..., Any]]:
        """The user's functions, whose code decides its results, too."""
        return ()

    @abstractmethod
    def words(self) -> Iterable[str]:
        """What it does, in a few short lines for people."""

    def rehearsed(self) -> StatefulSpec:
        """The same without the user's functions: it may be given tuples that do not exist.

        Compiled functions of aggregates stay: they are arithmetic, and compiling takes time.
        """
        return self


def as_json(value: Any) -> Any:
    """A setting as JSON values: of what is computed its text, of a function its name."""
    if hasattr(value, "describe"):
        return value.describe()
    if hasattr(value, "text"):
        return value.text
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if callable(value):
        return getattr(value, "__name__", "function")
    return str(value) if isinstance(value, pa.DataType) else value
