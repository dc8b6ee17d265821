"""BSort: an approximate sort with a buffer of n tuples (Hwang 2.2).

Each tuple enters the buffer as it comes.  When that makes n, the smallest leaves: by the ordering
columns, ties by arrival.  That is n - 1 passes of bubble sort.  A tuple that comes too late,
smaller than one that has left, leaves all the same, and is counted (`late_tuples`); where late
tuples are routed it leaves by an output of their own, and the results of a buffer are in order.  At
the end of the stream all leave, in order.  With `flush`, a tuple also leaves as soon as the
watermark has passed its time, at once if it had when the tuple came (then it is late, too).  With
`per`, each key has a buffer of its own; what a watermark lets leave is ordered across keys.

The output is a function of the tuples in order and of where watermarks stand, never of how stream
events are cut.

State, and why it can be rebuilt.  Let S be all tuples so far that the clock has not passed.  What
waits are always the n - 1 greatest of S: entering and letting the smallest go keeps that, and so
does a watermark, which takes all below it, so that who goes takes along everything that was smaller
and had gone before.  The n-th greatest of S, if there is one, is the greatest that has left; it is
kept, too, to know what comes out of order (whatever has left but is not in S is below the clock).
So the state is the n greatest of S, a set that says nothing of the order in which they came.

Parts: without keys, blocks of positions; a block is open while one of its tuples is among the n.
With keys, each key's buffer, open while it holds a tuple.  A snapshot holds a part's tuples.
After a crash, candidates are the tuples in snapshots and those of replayed input that belong to a
restored part, lie behind its footprint and are in S, which the restored clock alone decides:
watermarks need not come again.  All of the n are candidates, because each belonged to an open part
and was in its snapshot or came after it; and candidates are all from S.  So the n greatest
candidates are the state, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError
from rewake.model.given import check_flag
from rewake.model.stream_event import NO_TIME, TIME_LIMIT, StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array, Int32s, Int64s, spared
from rewake.operators.columns.keys import GroupBy
from rewake.operators.columns.plain import plain_batch, plain_schema
from rewake.operators.columns.values import TimeColumn, place_of
from rewake.operators.kit.footprints import check_layout
from rewake.operators.kit.tuples import HeldBatches, pack_tuples, tuples_of
from rewake.operators.sorting.buffers import NO_OWNERS, SortBuffers
from rewake.operators.sorting.order import Ordering
from rewake.operators.stateful import (
    NO_IDS,
    NO_SLOTS,
    Outcome,
    StatefulOperator,
    StatefulSpec,
    StoredParts,
)

__all__ = ["Sort", "SortSpec"]

# A block is an eighth of the buffer, within these bounds: few parts, of which the oldest ends soon.
LEAST_BLOCK, _MOST_BLOCK = 64, 65_536
# Tuples that have left are dropped once there are this many more of them than of waiting ones.
SPARE_ROWS = 4096
_MOST_TUPLES = 2**31


@dataclass(frozen=True)
class SortSpec(StatefulSpec):
    """What a sort does: the columns to order `by`, and the size of the `buffer`.

    `per` names key columns, each key with a buffer of its own.  `flush` lets tuples leave when the
    watermark passes the first ordering column, which must then be the event time.  `route_late`
    emits tuples that come too late on an output of their own; they are counted either way.
    """

    by: tuple[str, ...]
    buffer: int
    per: tuple[str, ...] = ()
    flush: bool = False
    descending: bool = False
    route_late: bool = False

    kind: ClassVar[str] = "sort"

    @property
    def operator_class(self) -> OperatorClass:
        """A great tuple may wait for ever, unless a watermark sends it away (Hwang 3.2.2)."""
        return OperatorClass.CONVERGENT_CAPABLE if self.flush else OperatorClass.DETERMINISTIC

    def keys(self, port: int) -> tuple[str, ...]:
        """Tuples of a buffer belong together."""
        assert port == 0, "a sort has one input"
        return self.per

    def operator(self, *schemas: pa.Schema) -> Sort:
        """A new operator."""
        (schema,) = schemas
        return Sort(self, schema)

    def words(self) -> Iterable[str]:
        """Order and keys, then the buffer."""
        order = ", ".join(self.by) + (" descending" if self.descending else "")
        yield f"sort by {order}" + (f" per {', '.join(self.per)}" if self.per else "")
        yield f"buffer of {self.buffer} tuples" + (", flushed by watermarks" if self.flush else "")


def _check(spec: SortSpec, schema: pa.Schema) -> TimeColumn | None:
    """Refuse a spec that makes no sense; the event time, where it is needed."""
    if not spec.by:
        raise UsageError("a sort needs at least one ordering column: give by='column'")
    size = spec.buffer
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size < _MOST_TUPLES:
        raise UsageError(f"the buffer of a sort holds from 1 to 2**31 - 1 tuples, not {size!r}")
    for name in ("flush", "descending", "route_late"):
        check_flag(name, getattr(spec, name))
    for name in spec.per:
        place_of(schema, name, "buffers per")
    if not spec.flush:
        return None
    if spec.descending:
        raise UsageError("a watermark sends off the earliest: a descending sort has no flush")
    place_of(schema, spec.by[0], "sort by")
    return TimeColumn(schema, spec.by[0])


class Sort(StatefulOperator):
    """The operator.  Results have the columns of its input, without dictionaries."""

    clock = NO_TIME

    def __init__(self, spec: SortSpec, schema: pa.Schema) -> None:
        super().__init__(schema)
        self.spec = spec
        self.output_schema = plain_schema(schema)
        self._time = _check(spec, self.output_schema)
        self._order = Ordering(self.output_schema, spec.by, descending=spec.descending)
        self._keys = GroupBy(self.output_schema, spec.per, refuse_nulls=False) if spec.per else None
        span = 0 if spec.per else max(LEAST_BLOCK, min(_MOST_BLOCK, spec.buffer // 8))
        self._buffers = SortBuffers(spec.buffer, span, len(spec.by))
        self._tuples = HeldBatches(self.output_schema)

    # --- the normal path ---------------------------------------------------------------------

    @property
    def delay(self) -> int | None:
        """Flushed, nothing waits that the clock has passed; else tuples wait for others to come."""
        return 0 if self.spec.flush else None

    @property
    def open_parts(self) -> int:
        """How many parts are open: N."""
        return self._buffers.open_parts

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""
        return self._buffers.ids

    @property
    def _ended(self) -> bool:
        return self.clock >= TIME_LIMIT

    def process(self, event: StreamEvent) -> Outcome:
        """Let tuples in, and out; then what the watermark sends off."""
        batch, keys = self._read(event)
        owners = NO_OWNERS
        if self._keys is not None:
            owners = self._keys.intern(batch, event.position)
            self._buffers.ensure_keys(self._keys.table.id_limit)
        row = self._add(batch, keys, event.position + np.arange(batch.num_rows))
        self._buffers.begin()
        rows, opened, touched = self._buffers.arrive(row, owners, self._passed(keys))
        if self._advance(event.watermark):
            flushed, also = self._buffers.release(everything=self._ended, clock=self.clock)
            rows, touched = np.concatenate([rows, flushed]), np.concatenate([touched, also])
        opened, ended = self._buffers.settle(event.position, opened, touched)
        self.late_tuples = self._buffers.disorder
        results, late = self._leaving(rows)
        self._drop_gone()
        return Outcome(results, late, opened, self.ids_of(opened), ended, touched)

    def _leaving(self, rows: Int64s) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Tuples that leave in order, and those out of it; they are told by the sign."""
        late = NO_IDS
        if self.spec.route_late:
            late, rows = ~rows[rows < 0], rows[rows >= 0]
        rows = np.where(rows < 0, ~rows, rows)
        taken = [self._tuples.take(each) if each.size else None for each in (rows, late)]
        return taken[0], taken[1]

    def _read(self, event: StreamEvent) -> tuple[pa.RecordBatch, Int64s]:
        self.check_schema(event)
        batch = plain_batch(event.batch)
        self._order.check(batch, event.position)
        if self._time is not None:
            self._time.times(batch, event.position)
        return batch, self._order.keys(batch)

    def _add(self, batch: pa.RecordBatch, keys: Int64s, positions: Int64s) -> int:
        row = self._tuples.append(batch)
        self._buffers.add_rows(row, keys, positions)
        return row

    def _passed(self, keys: Int64s) -> Array:
        """Which tuples the clock has passed."""
        if self._ended or not self.spec.flush:
            return np.full(len(keys), self._ended)
        return keys[:, 0] < self.clock

    def _advance(self, watermark: int | None) -> bool:
        """Move the clock; whether tuples may leave for it."""
        if watermark is None or watermark <= max(self.clock, -TIME_LIMIT):
            return False
        before, self.clock = self.clock, min(watermark, TIME_LIMIT)
        return self.clock > before and (self.spec.flush or self._ended)

    def _drop_gone(self) -> None:
        rows = self._tuples.rows
        if rows > spared(self._buffers.held, SPARE_ROWS):
            live = self._buffers.live_rows(rows)
            self._tuples.keep(live)
            self._buffers.keep(rows, live)
        if self._keys is not None:
            slot_of = self._buffers.slot_of
            self._keys.table.forget_idle(self.open_parts, lambda end: slot_of[:end] >= 0)

    # --- footprints --------------------------------------------------------------------------

    def opening_columns(self, slots: Array) -> list[Array]:
        """The keys of parts; a block is known by its id alone."""
        return [] if self._keys is None else self._keys.table.pack(self._buffers.marks[slots])

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """Keys, how many tuples each part holds, then of all tuples: positions, and as bytes."""
        rows, lengths = self._buffers.rows_of(slots, self._tuples.rows)
        data = pack_tuples(self._tuples.take(rows))
        return [*self.opening_columns(slots), lengths, self._buffers.positions[rows], data]

    # --- recovery ----------------------------------------------------------------------------

    def _take_back(self, openings: StoredParts, snapshots: StoredParts, clock: int) -> Int32s:
        """See `StatefulOperator`."""
        self.clock, self._buffers.disorder = clock, self.late_tuples
        ids = np.concatenate([openings.ids, snapshots.ids])
        marks = [
            self._marks(openings, self.opening_columns(NO_SLOTS)),
            self._marks(snapshots, self.snapshot_columns(NO_SLOTS)),
        ]
        joined = np.concatenate(marks)
        if np.unique(joined).size != joined.size:
            raise DamagedFrame("the log has two open parts for one buffer or block")
        if self._keys is not None:
            self._buffers.ensure_keys(self._keys.table.id_limit)
        slots = self._buffers.restore_parts(ids, joined)
        lengths = [columns[-3] for columns in snapshots.columns]
        first = len(self.snapshot_columns(NO_SLOTS)) - 2
        for found in tuples_of(snapshots, self.output_schema, lengths, first):
            keys = self._stored_keys(found.batch)
            of_tuples = slots[openings.ids.size + found.parts]
            self._refill(found.batch, keys, found.positions, of_tuples)
        return slots

    def _marks(self, parts: StoredParts, layout: list[Array]) -> Int64s:
        """Key ids, or blocks, of stored parts, whose columns must be those of `layout`."""
        check_layout(parts, layout)
        if self._keys is None:
            return parts.ids // self._buffers.span
        table = self._keys.table
        frames = [columns[: table.footprint_columns] for columns in parts.columns]
        return table.unpack_all(frames, parts.rows, parts.totals).astype(np.int64)

    def _refill(
        self, batch: pa.RecordBatch, keys: Int64s, positions: Int64s, slots: Int32s
    ) -> None:
        """Put tuples of restored parts into their buffers, if the clock has not passed them."""
        waiting = np.flatnonzero(~self._passed(keys))
        if waiting.size < batch.num_rows:
            batch, keys = batch.take(pa.array(waiting)), keys[waiting]
            positions, slots = positions[waiting], slots[waiting]
        row = self._add(batch, keys, positions)
        self._buffers.refill(row, slots)
        self._drop_gone()

    def _stored_keys(self, batch: pa.RecordBatch) -> Int64s:
        try:
            self._order.check(batch, 0)
            if self._time is not None:
                self._time.times(batch, 0)
        except SchemaMismatch as error:
            raise DamagedFrame(f"a snapshot holds tuples that have no order: {error}") from error
        return self._order.keys(batch)

    def replay(self, event: StreamEvent) -> int:
        """Apply a stream event again to restored parts that have not seen it; emits nothing."""
        batch, keys = self._read(event)
        positions = event.position + np.arange(batch.num_rows)
        if self._keys is not None:
            owners = self._keys.find(batch, event.position)
            # Null is a key that is always known, but not always one with a place.
            known = np.where(owners < self._buffers.slot_of.size, owners, -1)
            slots = np.where(known >= 0, self._buffers.slot_of[known], -1)
        else:
            slots = self._slots_of_blocks(positions // self._buffers.span)
        behind = np.flatnonzero(slots >= 0)
        behind = behind[positions[behind] > self._applied[slots[behind]]]
        part = batch.take(pa.array(behind)) if behind.size < batch.num_rows else batch
        self._refill(part, keys[behind], positions[behind], slots[behind])
        return int(behind.size)

    def _slots_of_blocks(self, blocks: Int64s) -> Int32s:
        slots = np.flatnonzero(self._buffers.ids >= 0).astype(np.int32)
        if not slots.size:
            return np.full(blocks.size, -1, np.int32)
        slots = slots[np.argsort(self._buffers.marks[slots])]
        known = self._buffers.marks[slots]
        places = np.minimum(np.searchsorted(known, blocks), known.size - 1)
        return np.where(known[places] == blocks, slots[places], np.int32(-1))

    def _finish_replay(self) -> Array:
        """See `StatefulOperator`: no part is empty."""
        return self._buffers.empty_parts()
