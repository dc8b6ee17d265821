"""The eventual checkpoint that a log holds, gathered for showing (CEC II.B).

Read-only, as everything about inspection: it is what a recovery would load, without recovering.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.inspection.log import (
    Extent,
    Made,
    event_time,
    extent_of,
    made_by,
    opened_stores,
    pointed,
)
from rewake.log.log import Log
from rewake.model.errors import DamagedFrame, DamagedLog, NotALog, SchemaMismatch
from rewake.operators.columns.arrays import Int64s
from rewake.operators.columns.keys import GroupBy
from rewake.operators.kit.footprints import key_ids_of
from rewake.operators.stateful import StoredParts
from rewake.recovery.eventual.reading import EventualCheckpoint

__all__ = ["AgeGroup", "CheckpointInspection", "OpenWindow", "inspect_checkpoint"]

_GROUPS = 8


@dataclass(frozen=True, slots=True)
class AgeGroup:
    """How many footprints are from `youngest` up to but not including `oldest` tuples old."""

    youngest: int
    oldest: int
    windows: int


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window of the checkpoint; its id is the position of the tuple that opened it."""

    id: int
    kind: str
    footprint_time: int
    age: int
    key: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CheckpointInspection:
    """All that `rewake inspect checkpoint` shows; no `checkpoint` when the log is empty."""

    name: str
    frames: int
    made: Made
    extent: Extent
    checkpoint: EventualCheckpoint | None
    ages: list[AgeGroup]
    oldest: list[OpenWindow]

    @property
    def clock(self) -> int | str | None:
        """Event time at the end of the log, None when it has not started."""
        return None if self.checkpoint is None else event_time(self.checkpoint.clock)


def inspect_checkpoint(paths: Sequence[Path], windows: int = 10) -> CheckpointInspection:
    """Construct the eventual checkpoint and say what it consists of."""
    with ExitStack() as stack:
        stores = opened_stores(paths, stack)
        try:
            reader = Log.open_reader(stores)
        except NotALog as error:
            raise pointed(paths, error) from None
        extent, checkpoint = extent_of(reader.frames_backwards)
        if extent.reason:
            raise DamagedLog(extent.reason)
        made = made_by(reader.descriptor)
        return CheckpointInspection(
            name=reader.descriptor.name,
            frames=reader.end_sequence - reader.first_sequence,
            made=made,
            extent=extent,
            checkpoint=checkpoint,
            ages=[] if checkpoint is None else _age_groups(checkpoint),
            oldest=[] if checkpoint is None else _oldest(checkpoint, made, windows),
        )


def _age_groups(checkpoint: EventualCheckpoint) -> list[AgeGroup]:
    """Footprints by age, in a few groups of the same width that cover all of them."""
    applied = np.concatenate([checkpoint.openings.applied, checkpoint.snapshots.applied])
    if applied.size == 0:
        return []
    ages = checkpoint.time - applied
    width = int(ages.max()) // _GROUPS + 1
    counts = np.bincount(ages // width, minlength=1)
    return [
        AgeGroup(group * width, (group + 1) * width, int(count))
        for group, count in enumerate(counts)
    ]


def _oldest(checkpoint: EventualCheckpoint, made: Made, limit: int) -> list[OpenWindow]:
    """The windows whose footprints are oldest: those that the next CHECKs would be for."""
    parts = (checkpoint.openings, checkpoint.snapshots)
    ids = np.concatenate([stored.ids for stored in parts])
    times = np.concatenate([stored.applied for stored in parts])
    oldest = np.lexsort((ids, times))[: max(0, limit)]
    keys = _keys(parts, oldest, made)
    return [
        OpenWindow(
            id=int(ids[place]),
            kind="OPEN" if place < parts[0].ids.size else "CHECK",
            footprint_time=int(times[place]),
            age=checkpoint.time - int(times[place]),
            key=key,
        )
        for place, key in zip(oldest, keys, strict=True)
    ]


def _keys(
    parts: Sequence[StoredParts], chosen: Int64s, made: Made
) -> Sequence[dict[str, Any] | None]:
    """The keys of chosen parts, when the metadata says which columns they have."""
    unknown = [None] * chosen.size
    if made.schema is None or made.spec is None:
        return unknown
    try:
        table = GroupBy(made.schema, made.spec.by, refuse_nulls=False).table
        arrays = table.columns(key_ids_of(table, parts)[chosen])
    except (DamagedFrame, SchemaMismatch, KeyError, ValueError, pa.ArrowException):
        return unknown  # the metadata describes another operator
    keys: list[dict[str, Any]] = pa.RecordBatch.from_arrays(
        arrays, names=list(made.spec.by)
    ).to_pylist()
    return keys
