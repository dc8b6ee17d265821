"""The tables in which routing kernels put what a turn does, and the registers that count them.

Kernels share their scalars in one array of *registers*: the first eight are the output's, then come
those that all routers have (see `routing`), then a router's own.  A kernel stops before a tuple for
which there is no room; the router makes some.

Arrays are passed one by one rather than in a tuple: compiled code would count references on every
access to a tuple's member, which costs more than the work itself (measured on time windows: 3
times).  For the same reason the small kernels that work on one tuple are inlined (measured: a
quarter less time).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from rewake.operators.aggregate.accumulators import Closings
from rewake.operators.columns.arrays import Int32s, Int64s
from rewake.operators.windows.routing import Routing

Table = npt.NDArray[np.int64]

# What has been put out so far in the turn; then the position of the stream event.
CLOSINGS, PARTS, ENDED, LATE, OPENED, POSITION = range(6)

# Columns of the closings: row, key, tuples, end of window, end of its part references.
_AT, _KEY, _COUNT, _END, _LAST = range(5)


@dataclass(slots=True)
class Output:
    """Tables that a routing kernel fills."""

    closings: Table
    parts: Int64s
    opened: Table  # slot, row
    ended: Int64s  # ids
    late: Int64s

    @classmethod
    def for_rows(cls, rows: int, room: int) -> Output:
        """Empty tables for a stream event of so many rows, with room for so many endings."""
        return cls(
            closings=np.empty((room, 5), np.int64),
            parts=np.empty(room, np.int64),
            opened=np.empty((rows, 2), np.int64),
            ended=np.empty(room, np.int64),
            late=np.empty(rows, np.int64),
        )

    def enlarge(self, least: int) -> None:
        """At least `least` more, and at least twice the room for closings, parts and endings."""
        self.closings = _longer(self.closings, least)
        self.parts = _longer(self.parts, least)
        self.ended = _longer(self.ended, least)

    @staticmethod
    def begin_turn(registers: Int64s, position: int) -> None:
        """Nothing has been put out yet; the stream event starts at `position`."""
        registers[: OPENED + 1] = 0
        registers[POSITION] = position

    def routing(self, registers: Int64s, slots: Int32s, opened: Table) -> Routing:
        """What the kernels have put out; `opened` are those that are still open."""
        closings = self.closings[: registers[CLOSINGS]]
        first = np.zeros(len(closings) + 1, np.int64)
        first[1:] = closings[:, _LAST]
        return Routing(
            slots=slots,
            closings=Closings(closings[:, _AT].copy(), first, self.parts[: registers[PARTS]]),
            closing_keys=closings[:, _KEY].astype(np.int32),
            closing_counts=closings[:, _COUNT].copy(),
            closing_ends=closings[:, _END].copy(),
            opened_slots=opened[:, 0].astype(np.int32),
            opened_rows=opened[:, 1].copy(),
            ended_ids=self.ended[: registers[ENDED]],
            late_rows=self.late[: registers[LATE]],
        )


def _longer(table: Table, least: int) -> Table:
    larger = np.empty((max(2 * len(table), len(table) + least), *table.shape[1:]), np.int64)
    larger[: len(table)] = table
    return larger


@njit(cache=True, nogil=True, inline="always")
def add_closing(registers, closings, row, key, count, end, parts):  # type: ignore[no-untyped-def]
    """Record a closing whose part references have just been written."""
    c = registers[CLOSINGS]
    registers[PARTS] += parts
    closings[c, _AT] = row
    closings[c, _KEY] = key
    closings[c, _COUNT] = count
    closings[c, _END] = end
    closings[c, _LAST] = registers[PARTS]
    registers[CLOSINGS] = c + 1


@njit(cache=True, nogil=True, inline="always")
def add_opened(registers, opened, slot, row):  # type: ignore[no-untyped-def]
    """Record that the tuple at `row` opened a part."""
    opened[registers[OPENED], 0] = slot
    opened[registers[OPENED], 1] = row
    registers[OPENED] += 1


@njit(cache=True, nogil=True, inline="always")
def add_ended(registers, ended, part_id):  # type: ignore[no-untyped-def]
    """Record that a part ended, unless it also opened in this turn."""
    if part_id < registers[POSITION]:
        ended[registers[ENDED]] = part_id
        registers[ENDED] += 1
