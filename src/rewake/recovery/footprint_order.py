"""Open windows in the order of their last footprint (CEC III, state (c)), and what follows from it.

A queue with lazy deletion: a new footprint goes to the tail, and an entry whose window has closed
or has left a newer footprint is skipped when it reaches the head, so keeping the order costs O(1)
per footprint.  From the head come the extent `q` (records of the log that recovery goes through)
and `u` (input tuples that must be replayed) (CEC III.A, Figure 3).

Invariants: entries rise in record number and in time; `stamp[slot]` is the record number of the
last footprint of the open part in `slot`, or -1; an entry is live iff its number is the stamp.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rewake.operators.arrays import Array, Int32s, Int64s, grown

_SLOT, _RECORD, _TIME = range(3)
_SMALLEST = 1024


@njit(cache=True, nogil=True)
def _first_live(entries, stamp, head, tail):  # type: ignore[no-untyped-def]
    mask = len(entries) - 1
    while head < tail:
        entry = entries[head & mask]
        if stamp[entry[_SLOT]] == entry[_RECORD]:
            break
        head += 1
    return head


@njit(cache=True, nogil=True)
def _keep_live(entries, stamp, head, tail, kept):  # type: ignore[no-untyped-def]
    mask = len(entries) - 1
    count = 0
    for place in range(head, tail):
        entry = entries[place & mask]
        if stamp[entry[_SLOT]] == entry[_RECORD]:
            kept[count] = entry
            count += 1
    return count


@njit(cache=True, nogil=True)
def _leave(entries, stamp, tail, record, slots, times, before):  # type: ignore[no-untyped-def]
    """Footprints of these slots, `before` their times."""
    mask = len(entries) - 1
    for i in range(slots.size):
        slot = slots[i]
        place = (tail + i) & mask
        entries[place, _SLOT] = slot
        entries[place, _RECORD] = record + i
        entries[place, _TIME] = times[i] - before
        stamp[slot] = record + i


@njit(cache=True, nogil=True)
def _end(stamp, slots):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        stamp[slots[i]] = -1


@njit(cache=True, nogil=True)
def _overdue(entries, stamp, head, tail, total, most_records, oldest_time, due):  # type: ignore[no-untyped-def]
    """Slots whose checkpoint brings `q` or `u` down to target; each one adds a record itself."""
    mask = len(entries) - 1
    taken = 0
    for place in range(head, tail):
        if taken == due.size:
            break
        entry = entries[place & mask]
        if stamp[entry[_SLOT]] == entry[_RECORD]:
            within = total + taken - entry[_RECORD] <= most_records
            if within and entry[_TIME] >= oldest_time:
                break
            due[taken] = entry[_SLOT]
            taken += 1
    return taken


@njit(cache=True, nogil=True)
def _most_worthwhile(entries, stamp, head, tail, total, now, load, replay, price, due):  # type: ignore[no-untyped-def]
    """How many of the oldest windows to checkpoint so that benefit minus cost is largest.

    Checkpointing the `k` oldest moves the end of the extent to the next one; the oldest alone may
    bring nothing when many windows share its age, hence the search.
    """
    mask = len(entries) - 1
    best, best_gain = 0, 0.0
    taken = 0
    first_record, first_time = entries[head & mask, _RECORD], entries[head & mask, _TIME]
    for place in range(head, tail + 1):
        entry = entries[place & mask]
        if place < tail and stamp[entry[_SLOT]] != entry[_RECORD]:
            continue
        record = entry[_RECORD] if place < tail else total
        time = entry[_TIME] if place < tail else now
        saved = load * (record - first_record - taken) + replay * (time - first_time)
        gain = saved - price * taken
        if taken > 0 and gain > best_gain:
            best, best_gain = taken, gain
        if place == tail or taken == due.size:
            break
        due[taken] = entry[_SLOT]
        taken += 1
    return best


class FootprintOrder:
    """The queue, a ring of entries, and the count of all records written so far."""

    def __init__(self) -> None:
        self._entries = np.zeros((_SMALLEST, 3), np.int64)
        self._stamp = np.zeros(0, np.int64)
        self._head = 0
        self._tail = 0
        self.records = 0

    def ensure(self, slot_limit: int) -> None:
        """Make room for slots below `slot_limit`."""
        if slot_limit > self._stamp.size:
            self._stamp = grown(self._stamp, slot_limit, -1)

    def results(self, count: int) -> None:
        """So many RESULT records were written; they belong to no open window."""
        self.records += count

    def ended(self, slots: Array) -> None:
        """The parts in these slots are no longer open."""
        _end(self._stamp, slots)

    def opened(self, slots: Array, ids: Array) -> None:
        """Parts opened by the tuples at `ids`: as of just before them, they hold no tuple."""
        self._append(slots, ids, 1)

    def checked(self, slots: Array, time: int) -> None:
        """The state of these parts was recorded as of `time`."""
        self._append(slots, np.full(slots.size, time, np.int64), 0)

    def _append(self, slots: Array, times: Array, before: int) -> None:
        if self._tail + slots.size - self._head > len(self._entries):
            self._make_room(slots.size)
        _leave(self._entries, self._stamp, self._tail, self.records, slots, times, before)
        self._tail += slots.size
        self.records += slots.size

    def _make_room(self, more: int) -> None:
        """Drop dead entries; at least half of the ring is free then, so this is O(1) each."""
        kept = np.empty((self._tail - self._head, 3), np.int64)
        live = _keep_live(self._entries, self._stamp, self._head, self._tail, kept)
        self._lay_out(kept[:live], more)

    def _lay_out(self, live: Array, more: int) -> None:
        capacity = _SMALLEST
        while capacity < 2 * len(live) + more:
            capacity *= 2
        self._entries = np.zeros((capacity, 3), np.int64)
        self._entries[: len(live)] = live
        self._head, self._tail = 0, len(live)

    def restore(self, slots: Array, records: Array, times: Array, total: int) -> None:
        """Take over from a recovered log: the last footprint of each open part, in any order."""
        self._stamp = np.full(int(slots.max()) + 1 if slots.size else 0, -1, np.int64)
        self._stamp[slots] = records
        entries = np.stack([slots, records, times], axis=1)
        self._lay_out(entries[np.argsort(records, kind="stable")], 0)
        self.records = total

    def _skip_dead(self) -> bool:
        self._head = int(_first_live(self._entries, self._stamp, self._head, self._tail))
        return self._head < self._tail

    def _oldest(self) -> Array:
        entry: Array = self._entries[self._head & (len(self._entries) - 1)]
        return entry

    def extent_records(self) -> int:
        """Records from the oldest footprint of an open window to the end of the log: q."""
        return self.records - self.oldest_record()

    def oldest_record(self) -> int:
        """The record number of the oldest footprint that recovery needs."""
        return int(self._oldest()[_RECORD]) if self._skip_dead() else self.records

    def oldest_time(self, now: int) -> int:
        """Input time of the oldest footprint (T), or `now` when no window is open."""
        return int(self._oldest()[_TIME]) if self._skip_dead() else now

    def overdue(self, *, most_records: int, oldest_time: int, limit: int) -> Int32s:
        """Oldest windows to checkpoint until `q <= most_records` and `T >= oldest_time`."""
        if not self._skip_dead() or limit <= 0:
            return np.zeros(0, np.int32)
        due = np.empty(min(limit, self._tail - self._head), np.int32)
        taken = _overdue(
            self._entries,
            self._stamp,
            self._head,
            self._tail,
            self.records,
            most_records,
            oldest_time,
            due,
        )
        return due[:taken]

    def most_worthwhile(
        self, now: int, *, load: float, replay: float, price: float, limit: int
    ) -> Int32s:
        """Oldest windows whose checkpoints gain most, at these costs per record and tuple."""
        if not self._skip_dead() or limit <= 0:
            return np.zeros(0, np.int32)
        due = np.empty(min(limit, self._tail - self._head), np.int32)
        taken = _most_worthwhile(
            self._entries,
            self._stamp,
            self._head,
            self._tail,
            self.records,
            now,
            load,
            replay,
            price,
            due,
        )
        return due[:taken]

    def check_invariants(self, opened_at: Int64s) -> None:
        """Every open part has exactly one live entry; entries rise in number and time."""
        places = np.arange(self._head, self._tail) & (len(self._entries) - 1)
        entries = self._entries[places]
        live = entries[self._stamp[entries[:, _SLOT]] == entries[:, _RECORD]]
        assert np.all(np.diff(entries[:, _RECORD]) > 0), "footprints out of order"
        assert np.all(np.diff(live[:, _TIME]) >= 0), "footprint times run backwards"
        open_slots = np.flatnonzero(opened_at >= 0)
        assert np.array_equal(np.sort(live[:, _SLOT]), open_slots), "a window without a footprint"
