"""What a join holds: the tuples of both inputs, where they are by key, and who meets whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.operators.arrays import Array, Int32s, Int64s
from rewake.operators.columns import TIME_LIMIT
from rewake.operators.join.columns import PairCondition, Source
from rewake.operators.join.index import KeyIndex
from rewake.operators.join.rule import LEFT, RIGHT, JoinInputs, JoinRule
from rewake.operators.join.snapshots import PartTuples
from rewake.operators.join.tuples import HeldTuples

# A condition is computed for so many pairs at a time.
MOST_PAIRS = 262_144
# Tuples and keys that nobody needs are forgotten once there are this many more of them than others.
SPARE = 65_536


# The slots of the panes of times of an input.
SlotsOf = Callable[[int, Int64s], Int32s]


class Pairs(NamedTuple):
    """Places of tuples of a source, and the rows of their partners on the other input."""

    arriving: Array
    partners: Array


class JoinState:
    """The tuples of both inputs.

    Invariant: every tuple that is held and has a key is in the index of its input.  Tuples of ended
    panes may linger in both, where no tuple that is not late can reach them.
    """

    def __init__(self, rule: JoinRule, inputs: JoinInputs) -> None:
        self._rule = rule
        self._inputs = inputs
        self._within = inputs.within
        where = rule.where
        self._condition = None if where is None else PairCondition(where, inputs.columns)
        self.held = [HeldTuples(schema) for schema in inputs.schemas]
        self._index = [KeyIndex(), KeyIndex()]
        self._look_at = [SPARE, SPARE]

    def ensure_slots(self, capacity: int) -> None:
        """Make room for parts in slots below this."""
        for held in self.held:
            held.ensure_slots(capacity)

    # --- finding partners --------------------------------------------------------------------

    def pairs(self, side: int, source: Source, keys: Int32s) -> Pairs:
        """All pairs of tuples of an input with those that the other holds."""
        found = list(self._pieces(side, source, keys))
        if len(found) == 1:
            return found[0]
        return Pairs(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def _pieces(self, side: int, source: Source, keys: Int32s) -> Iterator[Pairs]:
        """The pairs in pieces, at least one."""
        for index in self._index:
            index.ensure(self._inputs.keys.id_limit)
        index = self._index[1 - side]
        begins, ends, total = index.ranges(keys, source.times, self._within)
        if self._condition is None or total == 0:
            yield Pairs(*index.pairs(begins, ends, 0, total))
            return
        totals = np.concatenate([[0], np.cumsum(ends - begins)])
        start = 0
        while totals[start] < total:
            stop = int(np.searchsorted(totals, totals[start] + MOST_PAIRS, "right")) - 1
            stop = max(stop, start + 1)
            count = int(totals[stop] - totals[start])
            pairs = Pairs(*index.pairs(begins[start:stop], ends[start:stop], start, count))
            holds = self._condition.holds(*self.sided(side, source, pairs))
            yield Pairs(pairs.arriving[holds], pairs.partners[holds])
            start = stop

    def sided(self, side: int, source: Source, pairs: Pairs) -> tuple[Source, Source, Array, Array]:
        """Sources and rows of both inputs, the left one first."""
        held = self.held[1 - side]
        if side == LEFT:
            return source, held, pairs.arriving, pairs.partners
        return held, source, pairs.partners, pairs.arriving

    # --- holding tuples ----------------------------------------------------------------------

    def hold(
        self,
        side: int,
        batch: pa.RecordBatch,
        positions: Int64s,
        times: Int64s,
        keys: Int32s,
        slots: Int32s,
        low: int,
    ) -> int:
        """Hold further tuples of an input; those older than `low` may be forgotten."""
        row = self.held[side].put(batch, positions, times, keys, slots)
        self._index[side].ensure(self._inputs.keys.id_limit)
        self._index[side].insert(keys, times, row, low)
        return row

    def hold_again(self, side: int, parts: list[PartTuples], slots_of: SlotsOf) -> None:
        """Hold all tuples of restored panes, in the order of their positions."""
        if not parts:
            return
        positions = np.concatenate([each.positions for each in parts])
        order = np.argsort(positions)
        batch = pa.concat_batches([each.batch for each in parts]).take(pa.array(order))
        times, keys = self._inputs.values(side, batch, int(positions[order[0]]))
        slots = slots_of(side, times)
        self.hold(side, batch, positions[order], times, keys, slots, -TIME_LIMIT)
        if self._rule.flags(side):
            settled = np.concatenate([each.settled for each in parts])
            self.held[side].settled[: order.size] = settled[order]

    def settle_again(self, side: int) -> None:
        """Find out which of an input's tuples have met a partner."""
        held = self.held[side]
        rows = np.flatnonzero(~held.view("settled"))
        for pairs in self._pieces(side, _Rows(held, rows), held.keys[rows]):
            held.settled[rows[pairs.arriving]] = True

    def forget(self, lows: tuple[int, int]) -> None:
        """Forget tuples older than these times, by input, when there are many of them."""
        limits = zip(self.held, self._look_at, strict=True)
        if all(held.count <= limit for held, limit in limits):
            return
        for side, held in enumerate(self.held):
            live = held.view("times") >= lows[side]
            if held.count > 2 * int(np.count_nonzero(live)) + SPARE:
                self._index[side].regroup(lows[side], 0, held.keep(live))
            self._look_at[side] = held.count + max(SPARE, 0)
        self._forget_keys(lows)

    def _forget_keys(self, lows: tuple[int, int]) -> None:
        """Only when nothing is left of a key may its number be given to another."""
        table = self._inputs.keys
        live = np.zeros(table.id_limit, np.bool_)
        for held in self.held:
            keys = held.view("keys")
            live[keys[keys >= 0]] = True
        if table.size > 2 * int(np.count_nonzero(live)) + SPARE:
            for side in (LEFT, RIGHT):
                self._index[side].regroup(lows[side])
            table.keep(live)


class _Rows:
    """Some of the tuples that are held, as a source."""

    def __init__(self, held: HeldTuples, rows: Array) -> None:
        self._held = held
        self._rows = rows
        self.times = held.times[rows]

    def take(self, rows: Array, places: list[int]) -> list[pa.Array]:
        """These columns of these rows."""
        return self._held.take(self._rows[rows], places)
