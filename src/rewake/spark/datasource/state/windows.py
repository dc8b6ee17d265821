"""The state of an aggregate as rows: a window each, or a pane of windows that overlap.

pane, tuples     the pane's number where windows overlap or are of time; tuples seen so far
nulls_x, ...     the functions' state; null where the footprint is an OPEN, which has none yet
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.log.files.descriptor import Descriptor
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.aggregate.spec_json import spec_from_json
from rewake.operators.columns.arrays import Array
from rewake.operators.columns.byte_rows import check_state, chosen_state
from rewake.operators.kit.footprints import other_operator
from rewake.operators.stateful import StoredParts
from rewake.operators.windows.specs import CountWindow, TimeWindow
from rewake.recovery.eventual.reading import EventualCheckpoint
from rewake.spark.datasource.state.functions import function_states, one_of_each
from rewake.spark.datasource.state.layout import KEY_COLUMNS, StateLayout, key_field
from rewake.spark.datasource.streams import stored_schema

__all__ = ["WindowLayout"]


class WindowLayout(StateLayout):
    """Which columns the footprints of an aggregate have, from what its log says of it."""

    def __init__(
        self, descriptor: Descriptor, described: dict[str, Any], given: pa.Schema | None
    ) -> None:
        self._spec = spec_from_json(described)
        schema = stored_schema(descriptor, 0) if given is None else given
        self._routing = _routing_columns(self._spec)
        states = function_states(self._spec.aggregates, schema, of_input=given is not None)
        self._state = [each for state in states for each in state.columns]
        kept = [(name, pa.int64()) for name in self._routing]
        kept += [(each.name, each.kind) for each in self._state]
        super().__init__(pa.schema([key_field(schema, name) for name in self._spec.by]), kept)

    def rows(self, checkpoint: EventualCheckpoint) -> list[pa.Array]:
        """A row for each window, or pane."""
        opens, checks = checkpoint.openings.ids.size, checkpoint.snapshots.ids.size
        routing = len(self._routing)
        opened = _joined(checkpoint.openings, None)
        stored = sum(each.width for each in self._state)
        checked = _joined(checkpoint.snapshots, routing + stored)
        arrays = self.footprints(checkpoint)
        for place in range(routing):
            # An opening has all but the number of tuples, which is none.
            before = (
                opened[place].astype(np.int64)
                if place < min(routing - 1, len(opened))
                else np.zeros(opens, np.int64)
            )
            after = checked[place] if checks else np.zeros(0, np.int64)
            arrays.append(pa.array(np.concatenate([before, after.astype(np.int64)])))
        return [*arrays, *self._state_arrays(opens, checks, checked)]

    def _state_arrays(self, opens: int, checks: int, columns: Sequence[Array]) -> list[pa.Array]:
        """The state columns: null for openings."""
        nothing: list[pa.Array] = [pa.nulls(opens, each.kind) for each in self._state]
        if not checks:
            return nothing
        routing = len(self._routing)
        state = one_of_each(self._state, columns[routing:])
        by_name = {each.name: column for each, column in zip(self._state, state, strict=True)}
        tuples = columns[routing - 1]
        return [
            pa.concat_arrays([before, each.values(by_name, tuples)])
            for each, before in zip(self._state, nothing, strict=True)
        ]


def _routing_columns(spec: AggregateSpec) -> list[str]:
    if isinstance(spec.window, TimeWindow):
        return ["pane", "tuples"]
    if not isinstance(spec.window, CountWindow):
        return ["tuples"]
    if spec.timeout is not None:
        return ["pane", "opened_time", "tuples"]
    return ["tuples"] if spec.window.tumbling else ["pane", "tuples"]


def _joined(parts: StoredParts, wanted: int | None) -> list[Array]:
    """The columns behind the key of chosen footprints, of all frames together."""
    found: list[list[Array]] = []
    for columns, rows, total in zip(parts.columns, parts.rows, parts.totals, strict=True):
        rest = columns[KEY_COLUMNS:]
        width = len(rest) if wanted is None else wanted
        if len(rest) != width:
            raise other_operator()
        check_state(rest, total)
        found.append(chosen_state(rest, rows))
    if len({len(each) for each in found}) > 1:
        raise other_operator()
    return [np.concatenate(each) for each in zip(*found, strict=True)]
