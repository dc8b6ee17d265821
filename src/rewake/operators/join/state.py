"""What a join holds: the tuples of both inputs, where they are by key, and who meets whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int32s, Int64s, spared
from rewake.operators.dead_letters import diverts
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

    def chosen(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(self.arriving[which], self.partners[which])


class FoundPartners(NamedTuple):
    """The pairs that join, those that the condition fails for, and how it does."""

    pairs: Pairs
    failing: Pairs
    errors: Sequence[str] = ()


_NO_PAIRS = Pairs(np.zeros(0, np.int32), np.zeros(0, np.int32))


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
        self._condition: PairCondition | None = None
        if where is not None:
            divert = diverts(rule.on_error)
            self._condition = PairCondition(where, inputs.columns, divert=divert)
        self.held = [HeldTuples(schema) for schema in inputs.schemas]
        self._index = [KeyIndex(), KeyIndex()]
        # How many are held before `forget` looks which of them nobody needs.
        self._tuples_limit = [SPARE, SPARE]
        self._keys_limit = SPARE

    def ensure_slots(self, capacity: int) -> None:
        """Make room for parts in slots below this."""
        for held in self.held:
            held.ensure_slots(capacity)

    # --- finding partners --------------------------------------------------------------------

    def find(self, side: int, source: Source, keys: Int32s) -> FoundPartners:
        """All pairs of tuples of an input with those that the other holds."""
        found = list(self._pieces(side, source, keys))
        if len(found) == 1:
            return found[0]
        pairs, failing, errors = zip(*found, strict=True)
        return FoundPartners(
            _together(pairs), _together(failing), list(chain.from_iterable(errors))
        )

    def _pieces(self, side: int, source: Source, keys: Int32s) -> Iterator[FoundPartners]:
        """The pairs in pieces, at least one."""
        for index in self._index:
            index.ensure(self._inputs.keys.table.id_limit)
        index = self._index[1 - side]
        begins, ends, total = index.ranges(keys, source.times, self._within)
        if self._condition is None or total == 0:
            yield FoundPartners(Pairs(*index.pairs(begins, ends, 0, total)), _NO_PAIRS)
            return
        totals = np.concatenate([[0], np.cumsum(ends - begins)])
        start = 0
        while totals[start] < total:
            stop = int(np.searchsorted(totals, totals[start] + MOST_PAIRS, "right")) - 1
            stop = max(stop, start + 1)
            count = int(totals[stop] - totals[start])
            pairs = Pairs(*index.pairs(begins[start:stop], ends[start:stop], start, count))
            judged = self._condition.judge(*self.sided(side, source, pairs))
            yield FoundPartners(
                pairs.chosen(judged.holds), pairs.chosen(judged.failing), judged.errors
            )
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
        self._index[side].ensure(self._inputs.keys.table.id_limit)
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
        for found in self._pieces(side, _Rows(held, rows), held.keys[rows]):
            held.settled[rows[found.pairs.arriving]] = True

    def forget(self, lows: tuple[int, int]) -> None:
        """Forget tuples older than these times, by input, and keys, when there are many of them."""
        for side, held in enumerate(self.held):
            if held.count > self._tuples_limit[side]:
                live = held.view("times") >= lows[side]
                needed = int(np.count_nonzero(live))
                if held.count > spared(needed, SPARE):
                    self._index[side].regroup(lows[side], 0, held.keep(live))
                self._tuples_limit[side] = _next_look(held.count, needed)
        if self._inputs.keys.table.size > self._keys_limit:
            self._forget_keys(lows)

    def _forget_keys(self, lows: tuple[int, int]) -> None:
        """Only when nothing is left of a key may its number be given to another."""
        table = self._inputs.keys.table
        live = np.zeros(table.id_limit, np.bool_)
        for held in self.held:
            keys = held.view("keys")
            live[keys[keys >= 0]] = True
        needed = int(np.count_nonzero(live))
        if table.size > spared(needed, SPARE):
            for side in (LEFT, RIGHT):
                self._index[side].regroup(lows[side])
            table.keep(live)
        self._keys_limit = _next_look(table.size, needed)


def _together(pieces: Sequence[Pairs]) -> Pairs:
    return Pairs(*(np.concatenate(each) for each in zip(*pieces, strict=True)))


def _next_look(held: int, needed: int) -> int:
    """How many must be held before it is worth looking again which are needed.

    A look costs what is held; there must be a quarter more for the next one to pay.
    """
    return max(spared(needed, SPARE), held + held // 4)


class _Rows:
    """Some of the tuples that are held, as a source."""

    def __init__(self, held: HeldTuples, rows: Array) -> None:
        self._held = held
        self._rows = rows
        self.times = held.times[rows]

    def take(self, rows: Array, places: list[int]) -> list[pa.Array]:
        """These columns of these rows."""
        return self._held.take(self._rows[rows], places)
