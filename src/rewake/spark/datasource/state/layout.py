"""What the states of all operators have in common as DataFrames: keys, footprints, names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from rewake.model.errors import SchemaMismatch
from rewake.operators.columns.keys import GroupBy
from rewake.operators.kit.footprints import key_ids_of
from rewake.recovery.eventual.reading import EventualCheckpoint
from rewake.spark.datasource.columns import constant
from rewake.spark.datasource.streams import Shard

__all__ = [
    "KEY_COLUMNS",
    "StateLayout",
    "footprints",
    "free_names",
    "key_columns",
    "key_field",
]

KEY_COLUMNS: Final = 2  # in every footprint, whatever the key is


class StateLayout(Protocol):
    """The columns of an operator's state, and how they are made of a checkpoint."""

    names: list[str]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the DataFrame."""

    def arrays(self, checkpoint: EventualCheckpoint, shard: Shard) -> list[pa.Array]:
        """The columns of a shard's rows, in the order of the names."""


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


def free_names(keys: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names of all columns, in order; one that is taken already gets an underscore."""
    names = list(keys)
    for name in others:
        free = name
        while free in names:
            free = f"_{free}"
        names.append(free)
    return names


def footprints(checkpoint: EventualCheckpoint) -> list[pa.Array]:
    """The columns `window`, `footprint` and `footprint_time`: openings first, then snapshots."""
    openings, snapshots = checkpoint.openings, checkpoint.snapshots
    kinds = [
        constant("open", pa.string(), openings.ids.size),
        constant("check", pa.string(), snapshots.ids.size),
    ]
    return [
        pa.array(np.concatenate([openings.ids, snapshots.ids])),
        pa.concat_arrays(kinds),
        pa.array(np.concatenate([openings.applied, snapshots.applied])),
    ]


def key_columns(checkpoint: EventualCheckpoint, keys: pa.Schema) -> list[pa.Array]:
    """The key columns of openings, then of snapshots."""
    table = GroupBy(keys, keys.names, refuse_nulls=False).table
    return table.columns(key_ids_of(table, (checkpoint.openings, checkpoint.snapshots)))
