"""Open windows in the order of their last footprint (CEC III, state (c)), and what follows from it.

A queue of footprints with lazy deletion: a turn's footprints go to the tail, and one whose window
has closed or has left a newer footprint is passed over when it reaches the head.  Leaving and
passing over footprints cost O(1) each.  They lie in pages of columns, so that many are looked at in
one go, and pages that are done with are written again: fresh memory costs more than the work.  From
the head come the extent `q` (records of the log that recovery goes through) and `u` (input tuples
that must be replayed) (CEC III.A, Figure 3).

Invariants: record numbers and times rise from head to tail.  A footprint is live iff the part in
its slot is still the one that left it, and that part has no later CHECK.  Every open part has
exactly one live footprint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from rewake.operators.columns.arrays import Array, Int32s, Int64s, grown

# Footprints are looked at in pieces of this size when few of the oldest are wanted.
PIECE = 1024
PAGE = 16_384
SPARE = 65_536
# A turn that leaves so many has a page of its own: they are not copied.
MANY = 4096
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


@njit(cache=True, nogil=True)
def _leave(slots, ids, first, stop, record, time, at, page):  # type: ignore[no-untyped-def]
    """Put the footprints from `first` to `stop` into a page; their records are consecutive."""
    for i in range(first, stop):
        place = at + i - first
        page[0, place] = slots[i]
        page[1, place] = ids[i]
        page[2, place] = record + i - first
        # An opened part holds no tuple yet just before the tuple that opened it.
        page[3, place] = ids[i] - 1 if time == _OPENED else time


class _Page:
    """Room for footprints, a row for each of their columns; those before `size` are there."""

    def __init__(self) -> None:
        self.columns = np.empty((len(Footprints._fields), PAGE), np.int64)
        self.size = 0

    @property
    def room(self) -> int:
        return self.columns.shape[1] - self.size

    def parts(self, start: int, stop: int) -> tuple[Array, Array]:
        """Slots and ids of those in a row."""
        return self.columns[0, start:stop], self.columns[1, start:stop]

    def between(self, start: int, stop: int, every: int = 1) -> Footprints:
        """Those in a row, or one of `every` so many."""
        return Footprints(*self.columns[:, start : min(stop, self.size) : every])


class _Turn:
    """The many footprints of one turn as a page that is full; times and records follow."""

    room = 0

    def __init__(self, slots: Array, ids: Array, first_record: int, time: int) -> None:
        self._slots, self._ids = slots, ids
        self._first_record, self._time = first_record, time
        self.size = slots.size

    def parts(self, start: int, stop: int) -> tuple[Array, Array]:
        """Slots and ids of those in a row."""
        # As in pages: code is compiled once for both, and not in the middle of a stream.
        return self._slots[start:stop].astype(np.int64), self._ids[start:stop]

    def between(self, start: int, stop: int, every: int = 1) -> Footprints:
        """Those in a row, or one of `every` so many."""
        ids = self._ids[start:stop:every]
        records = np.arange(start, min(stop, self.size), every) + self._first_record
        times = ids - 1 if self._time == _OPENED else np.full(ids.size, self._time, np.int64)
        slots = self._slots[start:stop:every].astype(np.int64)
        return Footprints(slots, ids, records, times)


@njit(cache=True, nogil=True, inline="always")
def _lives(slot, part, record, part_now, last_check):  # type: ignore[no-untyped-def]
    """Whether the part is still there, and has left no later CHECK."""
    # Slots beyond `last_check` belong to parts that were never checkpointed.
    return part_now == part and (slot >= last_check.size or last_check[slot] <= record)


@njit(cache=True, nogil=True)
def _first_there(ids, ids_now):  # type: ignore[no-untyped-def]
    """The first footprint whose part is still there; their number if there is none."""
    for i in range(ids.size):
        if ids_now[i] == ids[i]:
            return i
    return ids.size


@njit(cache=True, nogil=True)
def _first_live(slots, ids, records, ids_now, last_check):  # type: ignore[no-untyped-def]
    """The first footprint that recovery needs; their number if there is none."""
    for i in range(ids.size):
        if _lives(slots[i], ids[i], records[i], ids_now[i], last_check):
            return i
    return ids.size


@njit(cache=True, nogil=True)
def _select_live(slots, ids, records, times, ids_now, last_check, found):  # type: ignore[no-untyped-def]
    """Put all that recovery needs into `found`, in order; how many there are."""
    count = 0
    for i in range(ids.size):
        # Which of them live is as good as chance: each is put there, and kept by counting it.
        found[0, count] = slots[i]
        found[1, count] = ids[i]
        found[2, count] = records[i]
        found[3, count] = times[i]
        count += _lives(slots[i], ids[i], records[i], ids_now[i], last_check)
    return count


def _joined(parts: list[Footprints]) -> Footprints:
    return Footprints(*map(np.concatenate, zip(_NONE, *parts, strict=True)))


class FootprintOrder:
    """The queue, and the count of all records written so far.

    `ids_of` tells which parts are in slots now; it is how dead footprints are recognised.
    """

    def __init__(self, ids_of: Callable[[Array], Int64s]) -> None:
        self._ids_of = ids_of
        self._pages: deque[_Page | _Turn] = deque()
        self._spare: _Page | None = None
        self._passed = 0  # footprints of the first page that are known to be dead
        self._waiting = 0  # footprints in all pages
        self._last_check = np.zeros(0, np.int64)  # by slot: record number of the last CHECK
        self._crowded = SPARE  # so many footprints waiting, and dead ones are looked for
        self.records = 0

    # --- leaving footprints ------------------------------------------------------------------

    def results(self, count: int) -> None:
        """So many RESULT records were written; they belong to no open window."""
        self.records += count

    def opened(self, slots: Array, ids: Array) -> None:
        """Parts opened by the tuples at `ids`."""
        self._append(slots, ids, _OPENED)

    def checked(self, slots: Array, ids: Array, time: int) -> None:
        """The state of these parts was recorded as of `time`."""
        largest = int(slots.max()) if slots.size else -1
        if largest >= self._last_check.size:
            self._last_check = grown(self._last_check, 2 * largest + 2, -1)
        self._last_check[slots] = np.arange(self.records, self.records + slots.size)
        self._append(slots, ids, time)

    def _append(self, slots: Array, ids: Array, time: int) -> None:
        done, total = 0, slots.size
        if total >= MANY:
            self._pages.append(_Turn(slots, ids, self.records, time))
            done = total
        while done < total:
            page = self._pages[-1] if self._pages else None
            if not isinstance(page, _Page) or not page.room:
                page = self._new_page()
            stop = min(total, done + page.room)
            _leave(slots, ids, done, stop, self.records + done, time, page.size, page.columns)
            page.size += stop - done
            done = stop
        self._waiting += total
        self.records += total

    def _new_page(self) -> _Page:
        page, self._spare = self._spare or _Page(), None
        page.size = 0
        self._pages.append(page)
        return page

    def _take_over(self, footprints: Footprints, order: Array | None = None) -> None:
        """Let these be all that there are, in this order or as they come."""
        self._pages.clear()
        self._passed, self._waiting = 0, footprints.slots.size
        done = 0
        while done < footprints.slots.size:
            page = self._new_page()
            page.size = min(page.room, footprints.slots.size - done)
            which = slice(done, done + page.size)
            for column, values in zip(page.columns, footprints, strict=True):
                column[: page.size] = values[which if order is None else order[which]]
            done += page.size

    def restore(self, footprints: Footprints, total: int) -> None:
        """Take over from a recovered log: the last footprint of each open part, in any order."""
        self._take_over(footprints, np.argsort(footprints.records, kind="stable"))
        self.records = total

    def forget_dead(self, open_parts: int) -> None:
        """Drop dead footprints when they are most of the queue; O(1) per footprint.

        Windows that live about equally long die about in order: mostly it is enough to pass over
        those at the head, which looks at each once.
        """
        if self._waiting <= self._crowded:
            return
        self._oldest()
        if self._waiting > 4 * open_parts + SPARE:
            self._take_over(_joined(list(self._live(PAGE))))
        self._crowded = self._waiting + SPARE // 4

    # --- looking at the head -----------------------------------------------------------------

    def _live_of(self, footprints: Footprints) -> Footprints:
        """Those that recovery needs."""
        slots, ids, records, times = footprints
        found = np.empty((len(Footprints._fields), ids.size), np.int64)
        count = _select_live(
            slots, ids, records, times, self._ids_of(slots), self._last_check, found
        )
        return Footprints(*found[:, :count]) if count else _NONE

    def _pieces(self, size: int, every: int = 1) -> Iterator[Footprints]:
        """All that are not passed over, oldest first, at most so many at a time."""
        for number, page in enumerate(self._pages):
            for start in range(self._passed if number == 0 else 0, page.size, size):
                yield page.between(start, start + size, every)

    def _live(self, size: int, every: int = 1) -> Iterator[Footprints]:
        """Live ones, oldest first, in pieces that are not empty; or one of `every` so many."""
        for piece in self._pieces(size, every):
            # Compiled code is for columns without gaps.
            live = self._live_of(Footprints(*map(np.ascontiguousarray, piece)))
            if live.slots.size:
                yield live

    def _oldest(self) -> tuple[int, int] | None:
        """Record number and time of the oldest live footprint; passes over dead ones for good."""
        while self._pages:
            page = self._pages[0]
            size = 16  # mostly the head lives on; otherwise the first live one may be far away
            while self._passed < page.size:
                looked_at = min(size, page.size - self._passed)
                dead = self._dead_from(page, self._passed, looked_at)
                self._passed += dead
                if dead < looked_at:
                    _, _, records, times = page.between(self._passed, self._passed + 1)
                    return int(records[0]), int(times[0])
                size = 4096
            self._pages.popleft()
            self._spare = page if isinstance(page, _Page) else self._spare
            self._waiting -= page.size
            self._passed = 0
        return None

    def _dead_from(self, page: _Page | _Turn, start: int, count: int) -> int:
        """How many of so many footprints are dead before the first that lives."""
        if not self._last_check.size:
            # Without CHECKs a footprint lives as long as its part: nothing else is looked at.
            slots, ids = page.parts(start, start + count)
            return int(_first_there(ids, self._ids_of(slots)))
        slots, ids, records, _ = page.between(start, start + count)
        return int(_first_live(slots, ids, records, self._ids_of(slots), self._last_check))

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
        for piece in self._live(PIECE):
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
        return _NONE if self._oldest() is None else self._first_live(limit)

    def sampled(self, size: int, *, beyond: int) -> tuple[Footprints, Int64s]:
        """About `size` footprints, the live ones of them, and how many windows are as old or older.

        Of those that are not among the `beyond` oldest.  Exact when there are no more than `size`.
        """
        every = max(self._waiting // size, 1)
        live = _joined(list(self._live(PAGE, every)))
        ranks = np.arange(1, live.slots.size + 1, dtype=np.int64) * every
        behind = ranks > beyond
        return live.chosen(behind), ranks[behind]

    def _first_live(self, limit: int) -> Footprints:
        pieces, count = [], 0
        for piece in self._live(min(max(2 * limit, PIECE), PAGE)):
            pieces.append(piece)
            count += piece.slots.size
            if count >= limit:
                break
        return Footprints(*(column[:limit] for column in _joined(pieces)))

    def check_invariants(self, opened_at: Int64s) -> None:
        """Every open part has exactly one live footprint; they rise in number and time."""
        live = list(self._live(PIECE))
        for name in ("records", "times"):
            values = np.concatenate([np.zeros(0, np.int64), *[getattr(p, name) for p in live]])
            assert np.all(np.diff(values) >= (name == "records")), f"footprint {name} fall"
        slots = np.concatenate([np.zeros(0, np.int64), *[piece.slots for piece in live]])
        open_slots = np.flatnonzero(opened_at >= 0)
        assert np.array_equal(np.sort(slots), open_slots), "a window without a footprint"
