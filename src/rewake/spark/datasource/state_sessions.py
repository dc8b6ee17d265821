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

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.log.descriptor import Descriptor
from rewake.model.errors import DamagedFrame, SchemaMismatch, UsageError
from rewake.operators.arrays import Array
from rewake.operators.columns import TimeColumn
from rewake.operators.functions import First, Last, Max, Min, Stddev, UserDefined
from rewake.operators.session.operator import SessionSpec, pane_rows
from rewake.operators.spec_json import windows_from_json
from rewake.operators.stateful import StoredParts
from rewake.recovery.eventual_checkpoint import EventualCheckpoint
from rewake.spark.datasource.columns import constant
from rewake.spark.datasource.state_functions import FunctionState, as_kind, function_states
from rewake.spark.datasource.state_layout import (
    KEY_COLUMNS,
    footprints,
    free_names,
    key_columns,
    key_field,
    other_operator,
)
from rewake.spark.datasource.streams import Shard

__all__ = ["SessionLayout"]

# In a CHECK behind the key: the clock, and how many panes; then of each pane its id, and the first
# and last time and the number of tuples of its session.
_OF_KEYS, _OF_PANES = 2, 4


class SessionLayout:
    """Which columns the footprints of sessions have, from what their log says of them."""

    def __init__(
        self, descriptor: Descriptor, described: dict[str, Any], given: pa.Schema | None
    ) -> None:
        spec = windows_from_json(described)
        if not isinstance(spec, SessionSpec):
            raise UsageError(f"log {descriptor.name!r} is not one of sessions")
        if given is None:
            raise SchemaMismatch(
                f"log {descriptor.name!r} does not say which columns its sessions were given; "
                "kind=control shows its frames"
            )
        time = TimeColumn(given, spec.time)
        self._time, self._gap = time.kind, spec.window.in_unit(time.unit_ns)
        self._keys = pa.schema([key_field(given, name) for name in spec.by])
        self._states = function_states(spec.aggregates, given, of_input=True)
        self._stored = [each for state in self._states for each in state.columns]
        others = ["window", "footprint", "footprint_time", "session_start", "session_end"]
        others += ["tuples", *(each.name for each in self._stored), "shard"]
        self.names = free_names(self._keys.names, others)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the DataFrame."""
        kinds = [*self._keys.types, pa.int64(), pa.string(), pa.int64(), self._time, self._time]
        kinds += [pa.int64(), *(each.kind for each in self._stored), pa.int32()]
        return pa.schema(list(zip(self.names, kinds, strict=True)))

    def arrays(self, checkpoint: EventualCheckpoint, shard: Shard) -> list[pa.Array]:
        """The columns of a shard's sessions: those of keys with an OPEN first."""
        opens = checkpoint.openings.ids.size
        owners, panes = self._panes(checkpoint.snapshots)
        firsts = _first_panes(owners, panes)
        # Each row is of a key: openings have one row, the others one for each session.
        rows = pa.array(np.concatenate([np.arange(opens), opens + owners[firsts]]))
        whole = [*key_columns(checkpoint, self._keys), *footprints(checkpoint)]
        arrays = [column.take(rows) for column in whole]
        sessions = self._sessions(panes, firsts)
        arrays += [pa.concat_arrays([pa.nulls(opens, each.type), each]) for each in sessions]
        # It has seen none: that is known of an OPEN.
        place = len(whole) + 2
        arrays[place] = pa.compute.fill_null(arrays[place], 0)
        return [*arrays, constant(shard.number, pa.int32(), len(rows))]

    def _panes(self, parts: StoredParts) -> tuple[Array, list[Array]]:
        """Which key, counted among the CHECKs, each pane is of; and the panes' columns."""
        width = _OF_PANES + len(self._stored)
        owners: list[Array] = [np.zeros(0, np.int64)]
        found: list[list[Array]] = [[] for _ in range(width)]
        before = 0
        for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
            of_keys = columns[KEY_COLUMNS : KEY_COLUMNS + _OF_KEYS]
            rest = columns[KEY_COLUMNS + _OF_KEYS :]
            if len(rest) != width or any(column.size != total for column in of_keys):
                raise other_operator()
            taken, counts = pane_rows(of_keys[1], rest, rows)
            owners.append(np.repeat(before + np.arange(rows.size), counts))
            before += rows.size
            for kept, column in zip(found, rest, strict=True):
                kept.append(column[taken])
        joined = [np.concatenate(kept) if kept else np.zeros(0, np.int64) for kept in found]
        return np.concatenate(owners), joined

    def _sessions(self, panes: list[Array], firsts: Array) -> list[pa.Array]:
        """Start, end, tuples and state of every session."""
        _, starts, lasts, counts = (column[firsts] for column in panes[:_OF_PANES])
        if np.any(starts > lasts) or np.any(counts < 1):
            raise DamagedFrame("the log holds a session that cannot be")
        by_name, torn = self._merged(panes[_OF_PANES:], firsts)
        times = [as_kind(pa.array(each), self._time) for each in (starts, lasts + self._gap)]
        values = [each.values(by_name, counts) for each in self._stored]
        for place, stored in enumerate(self._stored):
            if stored.name in torn:
                values[place] = pa.array(values[place].to_numpy(False), mask=torn[stored.name])
        return [*times, pa.array(counts.astype(np.int64)), *values]

    def _merged(
        self, panes: Sequence[Array], firsts: Array
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The state of sessions by column; and for columns that cannot be merged, of which."""
        rest, merged, torn = list(panes), {}, {}
        total = panes[0].size if panes else 0
        ends = np.append(firsts[1:], total)
        several = np.flatnonzero(ends - firsts > 1)
        for state in self._states:
            columns, rest = rest[: len(state.columns)], rest[len(state.columns) :]
            whole = [column[firsts] for column in columns]
            for session in several.tolist():
                of_session = [column[firsts[session] : ends[session]] for column in columns]
                for column, value in zip(whole, _merge(state, of_session), strict=True):
                    column[session] = value
            for stored, column in zip(state.columns, whole, strict=True):
                merged[stored.name] = column
                if isinstance(state.function, UserDefined):
                    torn[stored.name] = ends - firsts > 1
        return merged, torn


def _first_panes(owners: Array, panes: Sequence[Array]) -> Array:
    """Where sessions begin: their panes are neighbours, and no two of a key start alike."""
    starts = panes[1]
    changed = (owners[1:] != owners[:-1]) | (starts[1:] != starts[:-1])
    return np.flatnonzero(np.append(True, changed)) if owners.size else np.zeros(0, np.int64)


def _merge(state: FunctionState, panes: list[Array]) -> list[Any]:
    """One function's state of a session, out of those of its panes."""
    match state.function:
        case Min():
            return [panes[0].min()]
        case Max():
            return [panes[0].max()]
        case First() | Last():
            return _nearest(panes[0], panes[1], latest=isinstance(state.function, Last))
        case Stddev():
            return _spread(*panes)
        case UserDefined():
            return [column[0] for column in panes]
    return [panes[0].sum()]


def _nearest(values: Array, arrivals: Array, *, latest: bool) -> list[Any]:
    """The value that arrived first, or last; an arrival of 0 is none."""
    far = 0 if latest else np.iinfo(arrivals.dtype).max
    seen = np.where(arrivals == 0, far, arrivals)
    place = int(seen.argmax() if latest else seen.argmin())
    return [values[place], arrivals[place]]


def _spread(counts: Array, means: Array, squares: Array) -> list[Any]:
    """Counts, means and squared distances of several as one (Chan, Golub and LeVeque 1979)."""
    total = counts.sum()
    if not total:
        return [counts[0], means[0], squares[0]]
    mean = math.fsum((counts * means).tolist()) / float(total)
    return [total, mean, squares.sum() + (counts * (means - mean) ** 2).sum()]
