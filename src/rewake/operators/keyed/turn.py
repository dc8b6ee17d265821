"""What a turn of keyed processing has done so far, and what it takes to undo it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rewake.operators.columns.arrays import Int32s, Int64s
from rewake.operators.columns.plain import plain_batch, plain_schema
from rewake.operators.dead_letters import dead_schema
from rewake.operators.keyed.vocabulary import KeyedTuples
from rewake.operators.stateful import NO_IDS, NO_SLOTS


@dataclass(slots=True)
class KeyedTurn:
    """Lists that grow with each call of the function."""

    clock_before: int
    outputs: list[pa.RecordBatch] = field(default_factory=list)
    opened: list[tuple[Int32s, Int64s]] = field(default_factory=list)
    ended: list[Int64s] = field(default_factory=list)
    by_watermark: list[Int32s] = field(default_factory=list)
    dead: list[tuple[KeyedTuples, str]] = field(default_factory=list)
    late: pa.RecordBatch | None = None
    # Slots with their state, timers and ids, before each call.
    before: list[tuple[Int32s, pa.RecordBatch, Int64s, Int64s]] = field(default_factory=list)

    def note(self, slots: Int32s, state: pa.RecordBatch, timer: Int64s, opened_at: Int64s) -> None:
        """This is what a call is about to change; the arrays are the caller's no more."""
        self.before.append((slots, state, timer, opened_at))

    def touched(self) -> Int32s:
        """The slots of all keys that were in a call."""
        return np.concatenate([NO_SLOTS, *(slots for slots, *_ in self.before)])

    def all_opened(self) -> tuple[Int32s, Int64s]:
        """Slots and ids of parts that opened, in the order of their ids."""
        slots = np.concatenate([NO_SLOTS, *(slots for slots, _ in self.opened)])
        ids = np.concatenate([NO_IDS, *(ids for _, ids in self.opened)])
        order = np.argsort(ids)
        return slots[order], ids[order]

    def results(self) -> pa.RecordBatch | None:
        """All tuples that were put out, in order."""
        if len(self.outputs) <= 1:
            return self.outputs[0] if self.outputs else None
        return pa.concat_batches(self.outputs)

    def dead_tuples(self, by: Sequence[str], schema: pa.Schema) -> pa.RecordBatch | None:
        """The tuples of keys for which the function failed, key by key; then timers."""
        if not self.dead:
            return None
        batches = [_dead_batch(given, error, by, schema) for given, error in self.dead]
        return pa.concat_batches(batches)


def keyed_dead_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of dead letters; those of a timer have no values but its key."""
    return dead_schema(pa.schema([each.with_nullable(True) for each in plain_schema(schema)]))


def _dead_batch(
    given: KeyedTuples, error: str, by: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch:
    """A failed key's tuples; of a failed timer one that has no values but its key."""
    rows = given.batch.num_rows
    columns = list(plain_batch(given.batch).columns)
    if given.fired.null_count == 0:
        rows, error = 1, f"timer at {given.fired[0].as_py()}: {error}"
        keys = dict(zip(by, given.keys.columns, strict=True))
        columns = [
            keys[each.name] if each.name in keys else pa.nulls(1, each.type)
            for each in list(schema)[:-1]
        ]
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(error, rows)], schema=schema)
