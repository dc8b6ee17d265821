"""The state of session windows as rows: an open session each.

    window                        the position of the tuple that opened its key's sessions
    session_start, session_end    the time of its first tuple, and when it ends unless more come
    tuples                        seen so far
    nulls_x, ...                  the functions' state

A key whose footprint is an OPEN has one row, and nothing is known of its session but the key.  A
session that grew together out of several is kept as panes, which are made one here; a user-defined
function's state of such a session is null, because its code is not in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.log.files.descriptor import Descriptor
from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError
from rewake.operators.aggregate.functions import (
    Avg,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.operators.columns.arrays import Array
from rewake.operators.columns.byte_rows import check_state, chosen_state
from rewake.operators.columns.values import TimeColumn
from rewake.operators.kit.footprints import other_operator, rows_of_parts
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import SessionWindow
from rewake.recovery.eventual.reading import EventualCheckpoint
from rewake.spark.datasource.state.functions import (
    FunctionState,
    as_kind,
    function_states,
    one_of_each,
)
from rewake.spark.datasource.state.layout import KEY_COLUMNS, StateLayout, key_field

__all__ = ["SessionLayout"]

# In a CHECK behind the key: the clock, and how many panes; then of each pane its id, and the first
# and last time and the number of tuples of its session.
_OF_KEYS, _OF_PANES = 2, 4


class SessionLayout(StateLayout):
    """Which columns the footprints of sessions have, from what their log says of them."""

    def __init__(
        self, descriptor: Descriptor, described: dict[str, Any], given: pa.Schema | None
    ) -> None:
        spec = spec_from_json(described)
        if not isinstance(spec.window, SessionWindow) or spec.time is None:
            raise UsageError(f"log {descriptor.name!r} is not one of sessions")
        if given is None:
            raise SchemaMismatch(
                f"log {descriptor.name!r} does not say which columns its sessions were given; "
                "kind=control shows its frames"
            )
        time = TimeColumn(given, spec.time)
        self._time, self._gap = time.kind, spec.window.in_unit(time.unit_ns)
        self._states = function_states(spec.aggregates, given, of_input=True)
        self._stored = [each for state in self._states for each in state.columns]
        # Only their code could make one of several.
        self._users = {
            each.name
            for state in self._states
            if isinstance(state.function, UserDefined)
            for each in state.columns
        }
        kept = [("session_start", self._time), ("session_end", self._time), ("tuples", pa.int64())]
        kept += [(each.name, each.kind) for each in self._stored]
        super().__init__(pa.schema([key_field(given, name) for name in spec.by]), kept)

    def rows(self, checkpoint: EventualCheckpoint) -> list[pa.Array]:
        """A row for each key with an OPEN, then for each session."""
        opens = checkpoint.openings.ids.size
        owners, panes = self._panes(checkpoint.snapshots)
        firsts = _first_panes(owners, panes)
        # Each row is of a key: openings have one row, the others one for each session.
        rows = pa.array(np.concatenate([np.arange(opens), opens + owners[firsts]]))
        whole = self.footprints(checkpoint)
        arrays = [column.take(rows) for column in whole]
        sessions = self._sessions(panes, firsts)
        arrays += [pa.concat_arrays([pa.nulls(opens, each.type), each]) for each in sessions]
        # It has seen none: that is known of an OPEN.
        place = len(whole) + 2
        arrays[place] = pc.fill_null(arrays[place], 0)
        return arrays

    def _panes(self, parts: StoredParts) -> tuple[Array, list[Array]]:
        """Which key, counted among the CHECKs, each pane is of; and the panes' columns."""
        width = _OF_PANES + sum(each.width for each in self._stored)
        owners: list[Array] = [np.zeros(0, np.int64)]
        found: list[list[Array]] = [[] for _ in range(width)]
        before = 0
        for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
            of_keys = columns[KEY_COLUMNS : KEY_COLUMNS + _OF_KEYS]
            rest = columns[KEY_COLUMNS + _OF_KEYS :]
            if len(rest) != width or any(column.size != total for column in of_keys):
                raise other_operator()
            lengths = of_keys[1]
            check_state(rest, int(lengths.sum(dtype=np.int64)))
            taken, counts = rows_of_parts(lengths, rows), lengths[rows]
            owners.append(np.repeat(before + np.arange(rows.size), counts))
            before += rows.size
            for kept, column in zip(found, chosen_state(rest, taken), strict=True):
                kept.append(column)
        joined = [np.concatenate(kept) if kept else np.zeros(0, np.int64) for kept in found]
        return np.concatenate(owners), joined

    def _sessions(self, panes: list[Array], firsts: Array) -> list[pa.Array]:
        """Start, end, tuples and state of every session."""
        _, starts, lasts, counts = (column[firsts] for column in panes[:_OF_PANES])
        if np.any(starts > lasts) or np.any(counts < 1):
            raise DamagedFrame("the log holds a session that cannot be")
        by_name = self._merged(panes[_OF_PANES:], firsts)
        several = np.diff(np.append(firsts, panes[0].size)) > 1
        times = [as_kind(pa.array(each), self._time) for each in (starts, lasts + self._gap)]
        values = [
            pc.if_else(pa.array(several), None, each.values(by_name, counts))
            if each.name in self._users
            else each.values(by_name, counts)
            for each in self._stored
        ]
        return [*times, pa.array(counts.astype(np.int64)), *values]

    def _merged(self, panes: Sequence[Array], firsts: Array) -> dict[str, Any]:
        """The state of sessions by column, out of that of their panes."""
        rest = one_of_each(self._stored, panes)
        merged: dict[str, Any] = {}
        for state in self._states:
            columns, rest = rest[: len(state.columns)], rest[len(state.columns) :]
            whole = _merge(state, columns, firsts) if firsts.size else columns
            merged |= {each.name: column for each, column in zip(state.columns, whole, strict=True)}
        return merged


def _first_panes(owners: Array, panes: Sequence[Array]) -> Array:
    """Where sessions begin: their panes are neighbours, and no two of a key start alike."""
    starts = panes[1]
    changed = (owners[1:] != owners[:-1]) | (starts[1:] != starts[:-1])
    return np.flatnonzero(np.append(True, changed)) if owners.size else np.zeros(0, np.int64)


def _merge(state: FunctionState, panes: Sequence[Any], firsts: Array) -> list[Any]:
    """One function's state of every session, out of those of its panes."""
    wide = isinstance(panes[0], pa.Array)
    match state.function:
        case Min() | Max() if wide:
            return [_extremes(panes[0], firsts, largest=isinstance(state.function, Max))]
        case Sum() | Avg() if wide:
            return [_sums(panes[0], firsts)]
        case Min():
            return [np.minimum.reduceat(panes[0], firsts)]
        case Max():
            return [np.maximum.reduceat(panes[0], firsts)]
        case First() | Last():
            values, arrivals = panes
            return _nearest(values, arrivals, firsts, latest=isinstance(state.function, Last))
        case Stddev():
            counts, means, squares = panes
            return _spread(counts, means, squares, firsts)
        case UserDefined():
            return [column[firsts] for column in panes]
    return [np.add.reduceat(panes[0], firsts)]


def _extremes(values: pa.Array, firsts: Array, *, largest: bool) -> pa.Array:
    """The smallest or largest value of each session; nulls are none."""
    table = pa.table({"session": _owners(firsts, len(values)), "value": values})
    order = [("session", "ascending"), ("value", "descending" if largest else "ascending")]
    places = pc.sort_indices(table, sort_keys=order)  # nulls come last
    return values.take(places.take(pa.array(firsts)))


def _sums(values: pa.Array, firsts: Array) -> pa.Array:
    """The sum of each session's decimals."""
    table = pa.table({"session": _owners(firsts, len(values)), "value": values})
    sums = table.group_by("session", use_threads=False).aggregate([("value", "sum")])
    return sums.column("value_sum").combine_chunks().cast(values.type)


def _nearest(values: Any, arrivals: Array, firsts: Array, *, latest: bool) -> list[Any]:
    """The value that arrived first, or last; an arrival of 0 is none."""
    far = 0 if latest else np.iinfo(arrivals.dtype).max
    seen = np.where(arrivals == 0, far, arrivals)
    best = (np.maximum if latest else np.minimum).reduceat(seen, firsts)
    owners = _owners(firsts, seen.size)
    # Arrivals are positions, which no two tuples share; where there is none, any pane will do.
    order = np.lexsort((seen != best[owners], owners))
    chosen = order[firsts]
    taken = values.take(pa.array(chosen)) if isinstance(values, pa.Array) else values[chosen]
    return [taken, arrivals[chosen]]


def _spread(counts: Array, means: Array, squares: Array, firsts: Array) -> list[Array]:
    """Counts, means and squared distances of several as one (Chan, Golub and LeVeque 1979)."""
    total = np.add.reduceat(counts, firsts)
    mean = np.add.reduceat(counts * means, firsts) / np.maximum(total, 1)
    away = counts * (means - mean[_owners(firsts, counts.size)]) ** 2
    return [total, mean, np.add.reduceat(squares + away, firsts)]


def _owners(firsts: Array, total: int) -> Array:
    """The session of each pane."""
    return np.repeat(np.arange(firsts.size), np.diff(np.append(firsts, total)))
