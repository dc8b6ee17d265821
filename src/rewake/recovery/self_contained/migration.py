"""The state of an operator's shards, divided anew among another number of shards.

Whole parts move: each is snapshotted where it is, and restored in the shard that its key belongs to
from now on.  A part's id is the position of the tuple that opened it, in its shard's own time;
moved parts get new ids in the order of their old ones, so that the parts of a key, all of which
come from one shard, keep their order.  The new ids are later than all of the old shards' times,
since what a part holds may know positions, too; the new shard's time goes on behind them.

The new log begins with one frame: a CHECK of every part, and the results of the newest batch, in
case it is asked for again.  From which of the old shards' clocks event time goes on is the
operator's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.log.results import result_sections
from rewake.model.stream_event import NO_TIME
from rewake.operators.columns.arrays import Array
from rewake.operators.stateful import NO_IDS, Emissions, StoredParts, open_slots
from rewake.recovery.approach import rows_in
from rewake.recovery.eventual.reading import pack_metadata, pack_parts
from rewake.recovery.packing import pack_tightly
from rewake.recovery.self_contained.engine import OperatorFactory, SelfContained
from rewake.recovery.self_contained.frames import CHECKS_WAY, BatchMark

__all__ = ["ShardParts", "first_record", "parts_of"]


class ShardParts(NamedTuple):
    """All open parts of one old shard, and to which new shard each goes (filled in by the host)."""

    ids: Array
    columns: list[Array]
    keys: list[pa.Array]
    position: int
    clock: int
    late_tuples: int
    shards: Array


def parts_of(state: SelfContained) -> ShardParts:
    """The parts of a shard as they are; `shards` is still to be told."""
    operator = state.operator
    slots = open_slots(operator)
    return ShardParts(
        ids=operator.ids_of(slots),
        columns=operator.snapshot_columns(slots),
        keys=operator.keys_in(slots),
        position=state.position,
        clock=operator.clock,
        late_tuples=operator.late_tuples,
        shards=np.zeros(slots.size, np.int64),
    )


def first_record(
    build: OperatorFactory,
    old: Sequence[ShardParts],
    shard: int,
    identity: bytes,
    results: Emissions,
    columns_fingerprint: int,
) -> TurnRecord:
    """The one record with which the log of a new shard begins."""
    chosen = [np.flatnonzero(parts.shards == shard) for parts in old]
    taken = [parts.ids[rows] for parts, rows in zip(old, chosen, strict=True)]
    ids = np.concatenate([NO_IDS, *taken])
    origin = np.concatenate([np.full(rows.size, number) for number, rows in enumerate(chosen)])
    base = max(parts.position for parts in old)
    moved = np.empty(ids.size, np.int64)
    moved[np.lexsort((origin, ids))] = np.arange(base, base + ids.size)
    operator = build()
    clock = operator.common_clock([parts.clock for parts in old])
    late = sum(parts.late_tuples for parts in old) if shard == 0 else 0
    t_end = base + ids.size - 1
    nothing = StoredParts(NO_IDS, NO_IDS, [], [], [])
    stored = StoredParts(
        moved,
        np.full(ids.size, t_end, np.int64),
        [parts.columns for parts in old],
        chosen,
        [parts.ids.size for parts in old],
    )
    slots = operator.restore(nothing, stored, clock=clock, late_tuples=late)
    operator.end_replay()
    mark = BatchMark(
        way=CHECKS_WAY,
        start=t_end + 1,
        position=t_end + 1,
        rows=0,
        watermark=NO_TIME,
        touched=ids.size,
        emitted=rows_in(results),
        repeat_frames=1,
        columns=columns_fingerprint,
    )
    columns = operator.snapshot_columns(slots)
    checks = pack_parts(operator.ids_of(slots), t_end, columns, pack_tightly)
    sections = [*result_sections(results), Section(SectionKind.BATCH, identity), mark.section()]
    if ids.size:
        sections.append(Section(SectionKind.CHECKS, checks))
    if late:
        sections.append(Section(SectionKind.METADATA, pack_metadata(late, None)))
    return TurnRecord(
        t_end=t_end,
        timestamp=clock,
        open_windows=ids.size,
        tuples=rows_in(results),
        records=rows_in(results) + ids.size,
        sections=tuple(sections),
    )
