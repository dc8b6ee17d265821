"""Open windows in the order of their last footprint (CEC III, state (c)), and what follows from it.

A queue of footprints with lazy deletion: a turn's footprints go to the tail as one block of
arrays, and one whose window has closed or has left a newer footprint is passed over when it reaches
the head.  Leaving footprints costs O(1) per turn, passing over them O(1) each.  From the head come
the extent `q` (records of the log that recovery goes through) and `u` (input tuples that must be
replayed) (CEC III.A, Figure 3).

Invariants: record numbers and times rise from head to tail.  A footprint is live iff the part in
its slot is still the one that left it, and that part has no later CHECK.  Every open part has
exactly one live footprint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rewake.operators.arrays import Array, Int32s, Int64s, grown

# Footprints are looked at in pieces of this size when the head is searched for.
_PIECE = 1024
_SPARE = 65_536
# From so many blocks on, going through them costs more than putting them together.
_MANY_BLOCKS = 32
# Stands for "just before the tuple that opened it" where times are numbers.
_OPENED = -2


class Footprints(NamedTuple):
    """Footprints of parts, oldest first: slots, ids, record numbers, input times."""

    slots: Array
    ids: Array
    records: Array
    times: Array

    def chosen(self, which: Array) -> Footprints:
        """Some of them."""
        return Footprints(
            self.slots[which], self.ids[which], self.records[which], self.times[which]
        )


_NONE = Footprints(*(np.zeros(0, np.int64) for _ in range(4)))


class _Block(NamedTuple):
    """The footprints of one turn: consecutive records; OPENs, or CHECKs taken at `time`."""

    slots: Array
    ids: Array
    first_record: int
    time: int | None

    def at(self, rows: Array) -> Footprints:
        ids = self.ids[rows]
        # An opened part holds no tuple yet just before the tuple that opened it.
        times = ids - 1 if self.time is None else np.full(ids.size, self.time, np.int64)
        return Footprints(self.slots[rows], ids, rows + self.first_record, times)


class _Merged(NamedTuple):
    """Live footprints of many turns, put together when too many dead ones had gathered."""

    all: Footprints

    @property
    def slots(self) -> Array:
        return self.all.slots

    @property
    def ids(self) -> Array:
        return self.all.ids

    def at(self, rows: Array) -> Footprints:
        return self.all.chosen(rows)


def _piece(block: _Block | _Merged, start: int) -> Footprints:
    return block.at(np.arange(start, min(start + _PIECE, block.slots.size)))


class FootprintOrder:
    """The queue, and the count of all records written so far.

    `ids_of` tells which parts are in slots now; it is how dead footprints are recognised.
    """

    def __init__(self, ids_of: Callable[[Array], Int64s]) -> None:
        self._ids_of = ids_of
        self._blocks: deque[_Block | _Merged] = deque()
        self._passed = 0  # footprints of the first block that are known to be dead
        self._waiting = 0  # footprints in all blocks
        self._last_check = np.zeros(0, np.int64)  # by slot: record number of the last CHECK
        self._crowded = _SPARE  # so many footprints waiting, and dead ones are looked for
        self.records = 0

    # --- leaving footprints ------------------------------------------------------------------

    def results(self, count: int) -> None:
        """So many RESULT records were written; they belong to no open window."""
        self.records += count

    def opened(self, slots: Array, ids: Array) -> None:
        """Parts opened by the tuples at `ids`."""
        self._append(_Block(slots, ids, self.records, None))

    def checked(self, slots: Array, ids: Array, time: int) -> None:
        """The state of these parts was recorded as of `time`."""
        largest = int(slots.max()) if slots.size else -1
        if largest >= self._last_check.size:
            self._last_check = grown(self._last_check, 2 * largest + 2, -1)
        self._last_check[slots] = np.arange(self.records, self.records + slots.size)
        self._append(_Block(slots, ids, self.records, time))

    def _append(self, block: _Block) -> None:
        if block.slots.size:
            self._blocks.append(block)
            self._waiting += block.slots.size
            self.records += block.slots.size

    def restore(self, footprints: Footprints, total: int) -> None:
        """Take over from a recovered log: the last footprint of each open part, in any order."""
        in_order = footprints.chosen(np.argsort(footprints.records, kind="stable"))
        self._blocks = deque([_Merged(in_order)])
        self._passed, self._waiting = 0, in_order.slots.size
        self.records = total

    def forget_dead(self, open_parts: int) -> None:
        """Drop dead footprints when they are most of the queue; O(1) per footprint.

        Windows that live about equally long die about in order: passing over those at the head is
        enough, and costs a fifth of what it costs to look at all.
        """
        if self._waiting <= self._crowded:
            return
        self._oldest()
        if self._waiting > 4 * open_parts + _SPARE:
            self._keep_live_only()
        self._crowded = self._waiting + _SPARE // 4

    def _keep_live_only(self) -> None:
        """Merge what is live into one block.

        All blocks are looked at together, and only at what tells the dead from the living: one by
        one, and in full, they would cost more than all other work on footprints.
        """
        oldest = self._blocks[0]
        merged = oldest.all if isinstance(oldest, _Merged) else _NONE
        old = merged.chosen(self._is_live(merged))
        new = self._live_of([block for block in self._blocks if isinstance(block, _Block)])
        live = Footprints(*(np.concatenate(pair) for pair in zip(old, new, strict=True)))
        self._blocks = deque([_Merged(live)])
        self._passed, self._waiting = 0, live.slots.size

    def _live_of(self, blocks: list[_Block], every: int = 1) -> Footprints:
        """The live footprints of blocks that are not merged yet, or one of `every` so many."""
        if not blocks:
            return _NONE
        parts = [block.slots[::every] for block in blocks]
        slots = np.concatenate(parts)
        ids = np.concatenate([block.ids[::every] for block in blocks])
        rows = np.flatnonzero(self._ids_of(slots) == ids)
        starts = np.cumsum([0, *[part.size for part in parts]])
        counts = np.diff(np.searchsorted(rows, starts))
        firsts = np.array([block.first_record for block in blocks]) - starts[:-1] * every
        times = [_OPENED if block.time is None else block.time for block in blocks]
        slots, ids, time = slots[rows], ids[rows], np.repeat(times, counts)
        records = rows * every + np.repeat(firsts, counts)
        same = Footprints(slots, ids, records, np.where(time == _OPENED, ids - 1, time))
        return same.chosen(~self._has_later_check(same))

    # --- looking at the head -----------------------------------------------------------------

    def _is_live(self, footprints: Footprints) -> Array:
        same: Array = self._ids_of(footprints.slots) == footprints.ids
        return same & ~self._has_later_check(footprints)

    def _has_later_check(self, footprints: Footprints) -> Array:
        """Slots beyond `_last_check` belong to parts that were never checkpointed."""
        later = np.zeros(footprints.slots.size, np.bool_)
        known = footprints.slots < self._last_check.size
        later[known] = self._last_check[footprints.slots[known]] > footprints.records[known]
        return later

    def _live(self) -> Iterator[Footprints]:
        """Live footprints from the oldest on, in pieces that are not empty."""
        for number, block in enumerate(self._blocks):
            first = self._passed if number == 0 else 0
            for start in range(first, block.slots.size, _PIECE):
                piece = _piece(block, start)
                live = piece.chosen(self._is_live(piece))
                if live.slots.size:
                    yield live

    def _oldest(self) -> tuple[int, int] | None:
        """Record number and time of the oldest live footprint; passes over dead ones for good."""
        while self._blocks:
            block = self._blocks[0]
            row = self._next_live(block, self._passed)
            if row is not None:
                self._passed = row
                oldest = block.at(np.array([row]))
                return int(oldest.records[0]), int(oldest.times[0])
            self._blocks.popleft()
            self._waiting -= block.slots.size
            self._passed = 0
        return None

    def _next_live(self, block: _Block | _Merged, row: int) -> int | None:
        """The first row from this one on whose footprint is live."""
        size = 16  # mostly the head lives on; otherwise the first live one may be far away
        while row < block.slots.size:
            slots, ids = block.slots[row : row + size], block.ids[row : row + size]
            # Most of the dead are told by the id in their slot alone.
            same = np.flatnonzero(self._ids_of(slots) == ids) + row
            if same.size:
                live = same[~self._has_later_check(block.at(same))]
                if live.size:
                    return int(live[0])
            row += size
            size = 4096
        return None

    def oldest_record(self) -> int:
        """The record number of the oldest footprint that recovery needs."""
        oldest = self._oldest()
        return self.records if oldest is None else oldest[0]

    def extent_records(self) -> int:
        """Records from the oldest footprint of an open window to the end of the log: q."""
        return self.records - self.oldest_record()

    def oldest_time(self, otherwise: int) -> int:
        """Input time of the oldest footprint (T), or `otherwise` when no window is open."""
        oldest = self._oldest()
        return otherwise if oldest is None else oldest[1]

    # --- choosing what to checkpoint -----------------------------------------------------------

    def overdue(self, *, most_records: int, oldest_time: int, limit: int) -> Int32s:
        """Oldest windows to checkpoint until `q <= most_records` and `T >= oldest_time`.

        Each CHECK adds a record itself, so the extent shrinks by one less than it seems.
        """
        chosen: list[Array] = []
        taken = 0
        if limit <= 0 or self._oldest() is None:
            return np.zeros(0, np.int32)
        for piece in self._live():
            extent = self.records + np.arange(taken, taken + piece.slots.size) - piece.records
            due = (extent > most_records) | (piece.times < oldest_time)
            count = min(piece.slots.size if due.all() else int(np.argmin(due)), limit - taken)
            chosen.append(piece.slots[:count])
            taken += count
            if count < piece.slots.size:
                break
        return np.concatenate(chosen).astype(np.int32) if chosen else np.zeros(0, np.int32)

    def most_worthwhile(
        self, now: int, *, load: float, replay: float, price: float, limit: int
    ) -> Int32s:
        """Oldest windows, as many as gain most at these costs per record, tuple and CHECK.

        Checkpointing the k oldest moves the end of the extent to the next one; the oldest alone may
        bring nothing when many windows share its age, hence the search for the best k.
        """
        if limit <= 0 or self._oldest() is None:
            return np.zeros(0, np.int32)
        slots, _, records, times = self._first_live(limit + 1)
        if slots.size <= limit:
            # All windows could be checkpointed: what would be left then is the present.
            records, times = np.append(records, self.records), np.append(times, now)
        k = np.arange(1, records.size)
        saved = load * (records[1:] - records[0] - k) + replay * (times[1:] - times[0])
        gain = saved - price * k
        best = int(np.argmax(gain))
        return slots[: best + 1].astype(np.int32) if gain[best] > 0 else np.zeros(0, np.int32)

    def oldest(self, limit: int) -> Footprints:
        """The oldest live footprints, oldest first, at most so many."""
        if self._oldest() is None:
            return _NONE
        # Whoever wants most of them pays for going through all: the next to look profits.
        if limit >= self._waiting // 4 and len(self._blocks) > _MANY_BLOCKS:
            self._keep_live_only()
        return self._first_live(limit)

    def sampled(self, size: int, *, beyond: int) -> tuple[Footprints, Int64s]:
        """About `size` footprints, the live ones of them, and how many windows are as old or older.

        Of those that are not among the `beyond` oldest.  Exact when there are no more than `size`.
        """
        every = max(self._waiting // size, 1)
        merged = [block for block in self._blocks if isinstance(block, _Merged)]
        old = _NONE
        if merged:
            piece = merged[0].at(np.arange(self._passed, merged[0].slots.size, every))
            old = piece.chosen(self._is_live(piece))
        new = self._live_of([each for each in self._blocks if isinstance(each, _Block)], every)
        live = Footprints(*(np.concatenate(pair) for pair in zip(old, new, strict=True)))
        ranks = np.arange(1, live.slots.size + 1, dtype=np.int64) * every
        behind = ranks > beyond
        return live.chosen(behind), ranks[behind]

    def _first_live(self, limit: int) -> Footprints:
        pieces, count = [], 0
        for piece in self._live_of_many(max(2 * limit, _PIECE)):
            pieces.append(piece)
            count += piece.slots.size
            if count >= limit:
                break
        return Footprints(*(np.concatenate(each)[:limit] for each in zip(*pieces, strict=True)))

    def _live_of_many(self, size: int) -> Iterator[Footprints]:
        """Live footprints from the oldest on, about `size` looked at in one go.

        As `_live`, for those who want many: turn by turn, looking would cost ten times as much.
        """
        gathered: list[_Block] = []
        waiting = 0
        for block in self._blocks:
            if isinstance(block, _Merged):  # the oldest, if there is one
                for start in range(self._passed, block.slots.size, size):
                    rows = np.arange(start, min(start + size, block.slots.size))
                    piece = block.at(rows)
                    yield piece.chosen(self._is_live(piece))
                continue
            gathered.append(block)
            waiting += block.slots.size
            if waiting >= size:
                yield self._live_of(gathered)
                gathered, waiting = [], 0
        yield self._live_of(gathered)

    def check_invariants(self, opened_at: Int64s) -> None:
        """Every open part has exactly one live footprint; they rise in number and time."""
        live = list(self._live())
        for name in ("records", "times"):
            values = np.concatenate([np.zeros(0, np.int64), *[getattr(p, name) for p in live]])
            assert np.all(np.diff(values) >= (name == "records")), f"footprint {name} fall"
        slots = np.concatenate([np.zeros(0, np.int64), *[piece.slots for piece in live]])
        open_slots = np.flatnonzero(opened_at >= 0)
        assert np.array_equal(np.sort(slots), open_slots), "a window without a footprint"
