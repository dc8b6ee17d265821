"""What the states of all operators have in common as DataFrames: keys, footprints, names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rewake.model.errors import SchemaMismatch
from rewake.operators.columns.keys import GroupBy
from rewake.operators.kit.footprints import key_ids_of
from rewake.recovery.eventual.reading import EventualCheckpoint
from rewake.spark.datasource.columns import constant

__all__ = ["KEY_COLUMNS", "StateLayout", "key_field"]

KEY_COLUMNS: Final = 2  # in every footprint, whatever the key is


class StateLayout(ABC):
    """The columns of an operator's state, and how they are made of a checkpoint.

    Those of the key, of the footprint and of the shard are the same for all operators.  A name that
    is taken already gets an underscore.
    """

    def __init__(self, keys: pa.Schema, kept: Sequence[tuple[str, pa.DataType]]) -> None:
        self.keys = keys
        footprint = [("window", pa.int64()), ("footprint", pa.string())]
        others = [*footprint, ("footprint_time", pa.int64()), *kept, ("shard", pa.int32())]
        fields = {field.name: field.type for field in keys}
        for name, kind in others:
            free = name
            while free in fields:
                free = f"_{free}"
            fields[free] = kind
        self.schema = pa.schema(list(fields.items()))

    def arrays(self, checkpoint: EventualCheckpoint, shard: int) -> Mapping[str, pa.Array]:
        """The columns of a shard's rows: those of footprints that are OPENs first."""
        columns = self.rows(checkpoint)
        columns.append(constant(shard, pa.int32(), len(columns[0])))
        return dict(zip(self.schema.names, columns, strict=True))

    @abstractmethod
    def rows(self, checkpoint: EventualCheckpoint) -> list[pa.Array]:
        """The columns of all rows but the shard."""

    def footprints(self, checkpoint: EventualCheckpoint) -> list[pa.Array]:
        """The columns of keys, `window`, `footprint` and `footprint_time`, a row for each part."""
        openings, snapshots = checkpoint.openings, checkpoint.snapshots
        kinds = [
            constant("open", pa.string(), openings.ids.size),
            constant("check", pa.string(), snapshots.ids.size),
        ]
        return [
            *self.key_columns(checkpoint),
            pa.array(np.concatenate([openings.ids, snapshots.ids])),
            pa.concat_arrays(kinds),
            pa.array(np.concatenate([openings.applied, snapshots.applied])),
        ]

    def key_columns(self, checkpoint: EventualCheckpoint) -> Sequence[pa.Array]:
        """The key columns of openings, then of snapshots."""
        table = GroupBy(self.keys, self.keys.names, refuse_nulls=False).table
        found: Sequence[pa.Array] = table.columns(
            key_ids_of(table, (checkpoint.openings, checkpoint.snapshots))
        )
        return found


def key_field(results: pa.Schema, name: str) -> pa.Field:
    """A key column, by the columns of a stream that has it."""
    place = results.get_field_index(name)
    if place < 0:
        raise SchemaMismatch(
            f"the log does not say of which type the key column {name!r} is; keep the column in "
            "the stream"
        )
    kind = results.field(place).type
    return pa.field(name, kind.value_type if pa.types.is_dictionary(kind) else kind)
