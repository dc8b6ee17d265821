"""Running aggregates of values that no 64 bits hold: exact decimals, and texts of any length.

The state of a part is a pair of integers (`wide_kernels`).  That of a text is where its bytes lie
in an arena: a stream event's texts go behind what is there, and parts refer to those they keep; so
a tuple costs no copy of its own.  Once most of the arena must be texts that nobody refers to, those
that are referred to move to a new one.

Footprint columns: of decimals, low and high halves; of texts, lengths (-1: none) and bytes; where
arrival counts, then the position behind that of the value (0: none).

Invariants: the state of a part that is not open is the identity; an arena has at most twice the
bytes of the texts it was left with, and `_SPARE_BYTES` or 16 for each part more, and those of a
stream event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.model.errors import ArithmeticOverflow, DamagedFrame
from rewake.operators.aggregate.accumulators import Closings, StateColumns
from rewake.operators.aggregate.wide_kernels import (
    run_decimal_extreme,
    run_decimal_sum,
    run_pair_arrival,
    run_text_extreme,
)
from rewake.operators.columns.arrays import Array, Bytes, Int32s, Int64s, grown, with_room
from rewake.operators.columns.byte_rows import gathered
from rewake.operators.columns.values import overflow_remedy
from rewake.operators.columns.wide import (
    DecimalColumn,
    TextColumn,
    TextValues,
    halves,
    largest_and_smallest,
)

__all__ = ["DecimalArrival", "DecimalExtreme", "DecimalSum", "TextArrival", "TextExtreme"]

_SPARE_BYTES = 1 << 20
_NO_TEXT = (0, -1)
_ZERO = (0, 0)


class DecimalSum(StateColumns):
    """Sums, exact; one with more digits than the type of sums has is an error."""

    def __init__(self, column: DecimalColumn) -> None:
        super().__init__((np.int64, _ZERO))
        self._column = column
        self._most = largest_and_smallest(column.sum_kind.precision)

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:
        """See `Accumulator.run`."""
        out = np.empty((closings.total, 2), np.int64)
        if run_decimal_sum(slots, values, *closings, *self._state, self._most, out):
            raise ArithmeticOverflow(
                f"the sum of column {self._column.name!r} has more digits than "
                f"{self._column.sum_kind} holds in the stream event at position {position}; "
                + overflow_remedy("a decimal with fewer digits")
            )
        return out


class DecimalExtreme(StateColumns):
    """Smallest or largest decimals."""

    def __init__(self, *, largest: bool) -> None:
        self._sign = -1 if largest else 1
        super().__init__((np.int64, halves(-(2**127) if largest else 2**127 - 1)))

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:  # noqa: ARG002
        """See `Accumulator.run`."""
        out = np.empty((closings.total, 2), np.int64)
        run_decimal_extreme(
            slots, values, *closings, *self._state, *self._identities, self._sign, out
        )
        return out


class DecimalArrival(StateColumns):
    """Decimals that arrived first or last."""

    def __init__(self, *, latest: bool) -> None:
        super().__init__((np.int64, _ZERO), (np.int64, 0))
        self._latest = latest

    def run(self, slots: Int32s, values: Array, position: int, closings: Closings) -> Array:
        """See `Accumulator.run`."""
        out = np.empty((closings.total, 2), np.int64)
        identity, latest = self._identities[0], self._latest
        run_pair_arrival(slots, values, position, *closings, *self._state, identity, latest, out)
        return out


class _Texts:
    """A text for each part, or none."""

    def __init__(self, column: TextColumn) -> None:
        self._column = column
        self._identity = np.array(_NO_TEXT, np.int64)
        self._state: Int64s = np.zeros((0, 2), np.int64)
        self._arena = np.zeros(0, np.uint8)
        self._used = 0
        self._swept_at = _SPARE_BYTES

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""
        self._state = grown(self._state, capacity, self._identity)

    def _admitted(self, values: TextValues) -> Int64s:
        """Put texts into the arena; where each of them lies, and how long it is."""
        ends, data = values
        start, stop = int(ends[0]), int(ends[-1])
        if self._used > self._swept_at:
            self._sweep()
        used = self._used + stop - start
        self._arena = with_room(self._arena, used)
        self._arena[self._used : used] = data[start:stop]
        pairs = np.empty((ends.size - 1, 2), np.int64)
        np.add(ends[:-1], self._used - start, out=pairs[:, 0])
        np.subtract(ends[1:], ends[:-1], out=pairs[:, 1])
        self._used = used
        return pairs

    def _sweep(self) -> None:
        """Keep the texts of parts, and no others."""
        slots = np.flatnonzero(self._state[:, 1] > 0)
        offsets, self._arena = self._texts(self._state[slots])
        self._state[slots, 0] = offsets[:-1]
        self._used = self._arena.size
        self._swept_at = 2 * self._used + max(_SPARE_BYTES, 16 * len(self._state))

    def _texts(self, pairs: Int64s) -> tuple[Int64s, Bytes]:
        starts, lengths = np.ascontiguousarray(pairs[:, 0]), pairs[:, 1]
        return gathered(starts, lengths, self._arena)

    def snapshot(self, slots: Array) -> list[Array]:
        """The state of parts, in columns."""
        pairs = self._state[slots]
        return [pairs[:, 1].astype(np.int32), self._texts(pairs)[1]]

    def load(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts, from the columns of a snapshot."""
        lengths, data = columns
        offsets = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        try:
            self._column.to_arrow((offsets, data), None).validate(full=True)
        except pa.ArrowException as error:
            raise DamagedFrame(f"a footprint holds what is no {self._column.kind}") from error
        pairs = self._admitted((offsets, data))
        pairs[lengths < 0] = self._identity
        self._state[slots] = pairs


class TextExtreme(_Texts):
    """First or last texts in the order of their bytes."""

    def __init__(self, column: TextColumn, *, largest: bool) -> None:
        super().__init__(column)
        self._sign = -1 if largest else 1

    def run(self, slots: Int32s, values: Any, position: int, closings: Closings) -> Any:  # noqa: ARG002
        """See `Accumulator.run`."""
        pairs = self._admitted(values)
        out = np.empty((closings.total, 2), np.int64)
        run_text_extreme(slots, pairs, *closings, self._state, self._arena, self._sign, out)
        return self._texts(out)


class TextArrival(_Texts):
    """Texts that arrived first or last."""

    def __init__(self, column: TextColumn, *, latest: bool) -> None:
        super().__init__(column)
        self._arrived = np.zeros(0, np.int64)
        self._latest = latest

    def ensure(self, capacity: int) -> None:
        """Make room for part slots below `capacity`."""
        super().ensure(capacity)
        self._arrived = grown(self._arrived, capacity)

    def run(self, slots: Int32s, values: Any, position: int, closings: Closings) -> Any:
        """See `Accumulator.run`."""
        pairs = self._admitted(values)
        out = np.empty((closings.total, 2), np.int64)
        run_pair_arrival(
            slots, pairs, position, *closings, self._state, self._arrived, self._identity,
            self._latest, out,
        )  # fmt: skip
        return self._texts(out)

    def snapshot(self, slots: Array) -> list[Array]:
        """The state of parts, in columns."""
        return [*super().snapshot(slots), self._arrived[slots]]

    def load(self, slots: Array, columns: Sequence[Array]) -> None:
        """Set the state of parts, from the columns of a snapshot."""
        lengths, _, arrived = columns
        if np.any((lengths < 0) != (arrived == 0)):
            raise DamagedFrame("a footprint holds a text that never arrived, or one that did not")
        super().load(slots, columns[:2])
        self._arrived[slots] = arrived
