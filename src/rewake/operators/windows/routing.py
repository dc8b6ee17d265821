"""What routing a stream event to window parts yields, and the protocol of those who do it.

A router decides, tuple by tuple and in compiled code, which part a tuple belongs to, which parts
open and end, and which windows close when.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s


class Routing(NamedTuple):
    """A routed turn.

    `opened_*` are the parts that opened in the turn and are still open after it; `ended_*` those
    that were open before it and are not any more.  A part is identified by the position of the
    tuple that opened it, which no other part ever has; a slot is used again.
    """

    slots: Int32s
    closings: Closings
    closing_keys: Int32s
    closing_counts: Int64s
    closing_ends: Int64s
    opened_slots: Int32s
    opened_rows: Int64s
    ended_ids: Int64s
    late_rows: Int64s
    # Given where it differs from `slots`: in a gap, a part counts tuples that are not added to it.
    touched: Int32s | None = None

    @property
    def touched_slots(self) -> Int32s:
        """The slots of all parts that changed; -1, and slots of ended parts, mean nothing."""
        return self.slots if self.touched is None else self.touched


NO_CLOSINGS = Closings(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))


class PartRows(NamedTuple):
    """Open parts as a snapshot gives them: identity, key, and the router's own columns."""

    ids: Int64s
    keys: Int32s
    columns: list[Array]


class Router(Protocol):
    """Keeps the open parts of every key, and routes stream events to them."""

    clock: int

    @property
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""

    @property
    def open_parts(self) -> int:
        """How many parts are open: the N of the footprints (CEC II.B)."""

    @property
    def live_keys(self) -> int:
        """How many keys have open parts."""

    @property
    def capacity(self) -> int:
        """All slots are below this."""

    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has open parts."""

    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """Route a stream event's tuples; `times` is empty when the stream has no time."""

    def replay(
        self, keys: Int32s, times: Int64s, position: int, applied: Int64s
    ) -> tuple[Int32s, Closings]:
        """Slots of tuples to apply again: those of open parts, after `applied[slot]`.

        Closings are of windows whose results are in the log already; they are not emitted.
        """

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""

    def keys_of(self, slots: Array) -> Int32s:
        """Key ids of open parts."""

    def opening_columns(self, slots: Array) -> list[Array]:
        """What an opening footprint says of parts besides key and id."""

    def snapshot_columns(self, slots: Array) -> list[Array]:
        """What a full snapshot says of parts besides key and id."""

    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> Int32s:
        """Take these parts as the open ones; returns their slots, opened first.

        Raises `DamagedFrame` for parts that cannot be open together: compiled code relies on it.
        """

    def misfilled(self) -> Int32s:
        """Slots of parts whose number of tuples is impossible after a replay."""
