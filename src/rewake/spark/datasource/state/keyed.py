"""The state of keyed processing as rows: a key each.

    window           the position of the tuple with which the key's state began
    timer            when its timer fires; null for none, and only where there is time
    the state's columns, by the names that the function knows; null where the footprint is an OPEN

The function itself is not needed, and not called.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rewake.log.contents import Contents
from rewake.log.files.descriptor import Descriptor
from rewake.model.errors import SchemaMismatch
from rewake.operators.columns.values import TimeColumn
from rewake.operators.keyed.calls import NO_TIMER
from rewake.operators.keyed.described import state_of
from rewake.operators.keyed.parts import KeyedParts
from rewake.operators.keyed.state import StateField
from rewake.recovery.eventual.reading import EventualCheckpoint
from rewake.spark.datasource.state.functions import as_kind
from rewake.spark.datasource.state.layout import StateLayout, key_field

__all__ = ["KeyedLayout"]

_MACHINE_TIME = pa.timestamp("ms", "UTC")


class KeyedLayout(StateLayout):
    """Which columns the footprints of keyed processing have, from what their log says of them."""

    def __init__(
        self, descriptor: Descriptor, described: dict[str, Any], given: pa.Schema | None
    ) -> None:
        fields = _fields(descriptor, described)
        if given is None or fields is None:
            raise SchemaMismatch(
                f"log {descriptor.name!r} does not say of which types its state is: an earlier "
                "version wrote it; kind=control shows its frames"
            )
        self._state, self._given = fields, given
        self._by = list(described["by"])
        self._timer = _timer_type(described, given)
        timer = [] if self._timer is None else [("timer", self._timer)]
        keys = pa.schema([key_field(given, name) for name in self._by])
        super().__init__(keys, [*timer, *((each.name, each.kind) for each in fields)])

    def rows(self, checkpoint: EventualCheckpoint) -> list[pa.Array]:
        """A row for each key."""
        parts = KeyedParts(
            self._given, self._by, self._state, refuse_nulls=False, timed=self._timer is not None
        )
        opened = parts.read(checkpoint.openings, whole=False)
        checked = parts.read(checkpoint.snapshots, whole=True)
        arrays = self.footprints(checkpoint)
        if self._timer is not None:
            timers = np.concatenate([opened.timers, checked.timers])
            arrays.append(as_kind(pa.array(timers, mask=timers == NO_TIMER), self._timer))
        for place, field in enumerate(self._state):
            told = [batch.column(place) for _, batch in checked.states]
            arrays.append(pa.concat_arrays([pa.nulls(opened.slots.size, field.kind), *told]))
        return arrays


def _fields(descriptor: Descriptor, described: dict[str, Any]) -> tuple[StateField, ...] | None:
    """The columns of the state; a node's log says them apart from the operator."""
    stored = described.get("state")
    if isinstance(stored, str):
        return state_of(stored)
    schema = Contents(descriptor).state
    return None if schema is None else tuple(StateField(each.name, each.type) for each in schema)


def _timer_type(described: dict[str, Any], given: pa.Schema) -> pa.DataType | None:
    """The type of timers: that of the time column, or of the machine's clock."""
    if described.get("timers") == "processing":
        return _MACHINE_TIME
    time = described.get("time")
    return None if time is None else TimeColumn(given, time).kind
