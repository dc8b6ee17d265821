"""What routing a stream event to window parts yields, and the base of those who do it.

A router decides, tuple by tuple and in compiled code, which part a tuple belongs to, which parts
open and end, and which windows close when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rewake.model.stream_event import NO_TIME
from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Array, Int32s, Int64s
from rewake.operators.stateful import NO_IDS, NO_SLOTS

# Places in the registers of every router, behind what is put out (see `kernel_tables`): the window,
# the clock, how many parts are open, and keys that have one.
SIZE, ADVANCE, PANE, CLOCK, OPEN, KEYS = range(8, 14)
# From here on they are a router's own.
OWN, REGISTERS = 14, 20


class Routing(NamedTuple):
    """A routed turn.

    `opened_*` are the parts that opened in the turn and are still open after it; `ended_*` those
    that were open before it and are not any more.  A part is identified by the position of the
    tuple that opened it, which no other part ever has; a slot is used again.  `slots` are those of
    the functions' state, by tuple; -1: of none.
    """

    slots: Int32s
    closings: Closings
    closing_keys: Int32s
    closing_counts: Int64s
    opened_slots: Int32s
    opened_rows: Int64s
    ended_ids: Int64s
    late_rows: Int64s = NO_IDS
    # Of windows of event time.
    closing_starts: Int64s = NO_IDS
    closing_ends: Int64s = NO_IDS
    # Given where it differs from `slots`: in a gap, a part counts tuples that are not added to it.
    touched: Int32s | None = None
    # Parts of which a watermark decided something that tuples alone would not.
    unrepeatable: Int32s = NO_SLOTS

    @property
    def touched_slots(self) -> Int32s:
        """The slots of all parts that changed; -1, and slots of ended parts, mean nothing."""
        return self.slots if self.touched is None else self.touched


NO_CLOSINGS = Closings(NO_IDS, np.zeros(1, np.int64), NO_IDS)


class PartRows(NamedTuple):
    """Open parts as footprints give them: identity, key, and the router's own columns."""

    ids: Int64s
    keys: Int32s
    columns: list[Array]


class Router(ABC):
    """Keeps the open parts of every key, and routes stream events to them.

    Most have one place in the functions' state for each part, its slot.
    """

    # How many columns of a snapshot have a value for each part, the last of which says how many
    # values the others have for it; None: all have one.
    columns_of_parts: int | None = None

    def __init__(self) -> None:
        self.registers = np.zeros(REGISTERS, np.int64)
        self.clock = NO_TIME

    @property
    def clock(self) -> int:
        """The event-time clock."""
        return int(self.registers[CLOCK])

    @clock.setter
    def clock(self, clock: int) -> None:
        self.registers[CLOCK] = clock

    @property
    def open_parts(self) -> int:
        """How many parts are open: the N of the footprints (CEC II.B)."""
        return int(self.registers[OPEN])

    @property
    def live_keys(self) -> int:
        """How many keys have open parts."""
        return int(self.registers[KEYS])

    @property
    @abstractmethod
    def opened_at(self) -> Int64s:
        """By slot: the id of the open part, or -1."""

    @property
    def capacity(self) -> int:
        """All places in the functions' state are below this."""
        return self.opened_at.size

    @abstractmethod
    def key_is_live(self, id_limit: int) -> Array:
        """For each key id below `id_limit`, whether it has open parts."""

    def common_clock(self, clocks: Sequence[int]) -> int:
        """Of shards that go on together: the latest, for no window that has closed opens again."""
        return max(clocks)

    @abstractmethod
    def route(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, id_limit: int
    ) -> Routing:
        """Route a stream event's tuples; `times` is empty when the stream has no time."""

    @abstractmethod
    def replay(
        self, keys: Int32s, times: Int64s, position: int, watermark: int, applied: Int64s
    ) -> tuple[Int32s, Closings]:
        """Where tuples are to be applied again: in open parts, after `applied[slot]`.

        Closings are of windows whose results are in the log already; they are not emitted.
        """

    def ids_of(self, slots: Array) -> Int64s:
        """Ids of open parts."""
        return self.opened_at[slots]

    def keys_of(self, slots: Array) -> Int32s:
        """Key ids of open parts: their slots, where a key has one part."""
        return slots.astype(np.int32, copy=False)

    def opening_columns(self, slots: Array) -> list[Array]:  # noqa: ARG002
        """What an opening footprint says of parts besides key and id."""
        return []

    @abstractmethod
    def snapshot(self, slots: Array) -> tuple[list[Array], Array]:
        """What a full snapshot says of parts besides key and id; where the functions' state is."""

    @abstractmethod
    def restore(self, opened: PartRows, snapshots: PartRows, id_limit: int) -> tuple[Int32s, Array]:
        """Take these parts as the open ones: their slots, opened first; where snapshots' state is.

        Raises `DamagedFrame` for parts that cannot be open together: compiled code relies on it.
        """

    @abstractmethod
    def finish_replay(self) -> tuple[Array, Closings]:
        """Slots of parts that are impossible after a replay; what the log's clock has closed."""
