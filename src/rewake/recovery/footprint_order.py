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

from rewake.operators.arrays import Array, Int32s, Int64s, capacity_for, grown

_SLOT, _RECORD, _TIME = range(3)


@njit(cache=True, nogil=True)
def _first_live(entries, stamp, head, tail):  # type: ignore[no-untyped-def]
    while head < tail and stamp[entries[head, _SLOT]] != entries[head, _RECORD]:
        head += 1
    return head


@njit(cache=True, nogil=True)
def _keep_live(entries, stamp, head, tail, kept):  # type: ignore[no-untyped-def]
    count = 0
    for e in range(head, tail):
        if stamp[entries[e, _SLOT]] == entries[e, _RECORD]:
            kept[count] = entries[e]
            count += 1
    return count


@njit(cache=True, nogil=True)
def _append(entries, stamp, tail, slots, times, record):  # type: ignore[no-untyped-def]
    for i in range(slots.size):
        entries[tail + i, _SLOT] = slots[i]
        entries[tail + i, _RECORD] = record + i
        entries[tail + i, _TIME] = times[i]
        stamp[slots[i]] = record + i


@njit(cache=True, nogil=True)
def _overdue(entries, stamp, head, tail, total, most_records, oldest_time, due):  # type: ignore[no-untyped-def]
    """Slots whose checkpoint brings `q` or `u` down to target; each one adds a record itself."""
    taken = 0
    for e in range(head, tail):
        if taken == due.size:
            break
        if stamp[entries[e, _SLOT]] == entries[e, _RECORD]:
            within = total + taken - entries[e, _RECORD] <= most_records
            if within and entries[e, _TIME] >= oldest_time:
                break
            due[taken] = entries[e, _SLOT]
            taken += 1
    return taken


@njit(cache=True, nogil=True)
def _most_worthwhile(entries, stamp, head, tail, total, now, load, replay, price, due):  # type: ignore[no-untyped-def]
    """How many of the oldest windows to checkpoint so that benefit minus cost is largest.

    Checkpointing the `k` oldest moves the end of the extent to the next one; the oldest alone may
    bring nothing when many windows share its age, hence the search.
    """
    best, best_gain = 0, 0.0
    taken = 0
    first_record, first_time = entries[head, _RECORD], entries[head, _TIME]
    for e in range(head, tail + 1):
        if e < tail and stamp[entries[e, _SLOT]] != entries[e, _RECORD]:
            continue
        record = entries[e, _RECORD] if e < tail else total
        time = entries[e, _TIME] if e < tail else now
        saved = load * (record - first_record - taken) + replay * (time - first_time)
        gain = saved - price * taken
        if taken > 0 and gain > best_gain:
            best, best_gain = taken, gain
        if e == tail or taken == due.size:
            break
        due[taken] = entries[e, _SLOT]
        taken += 1
    return best


class FootprintOrder:
    """The queue, and the count of all records written so far."""

    def __init__(self) -> None:
        self._entries = np.zeros((1024, 3), np.int64)
        self._stamp = np.zeros(0, np.int64)
        self._head = 0
        self._tail = 0
        self.records = 0

    def results(self, count: int) -> None:
        """So many RESULT records were written; they belong to no open window."""
        self.records += count

    def ended(self, slots: Array) -> None:
        """The parts in these slots are no longer open."""
        self._stamp[slots] = -1

    def leave(self, slots: Array, times: Array) -> None:
        """The parts in these slots leave footprints at these input times, in this order."""
        if slots.size == 0:
            return
        largest = int(slots.max())
        if largest >= self._stamp.size:
            self._stamp = grown(self._stamp, capacity_for(largest + 1, self._stamp.size), -1)
        if self._tail + slots.size > len(self._entries):
            self._compact(slots.size)
        _append(self._entries, self._stamp, self._tail, slots, times, self.records)
        self._tail += slots.size
        self.records += slots.size

    def _compact(self, more: int) -> None:
        """Drop dead entries; half of the new room is free, so this is O(1) per footprint."""
        waiting = self._tail - self._head
        kept = np.empty((waiting, 3), np.int64)
        live = _keep_live(self._entries, self._stamp, self._head, self._tail, kept)
        needed = live + max(live // 2, 1024) + more
        if needed > len(self._entries) or needed < len(self._entries) // 4:
            self._entries = np.empty((needed, 3), np.int64)
        self._entries[:live] = kept[:live]
        self._head, self._tail = 0, live

    def restore(self, slots: Array, records: Array, times: Array, total: int) -> None:
        """Take over from a recovered log: the last footprint of each open part, in any order."""
        order = np.argsort(records, kind="stable")
        self._stamp = np.full(int(slots.max()) + 1 if slots.size else 0, -1, np.int64)
        self._stamp[slots] = records
        self._entries = np.zeros((slots.size + 1024, 3), np.int64)
        self._entries[: slots.size] = np.stack([slots, records, times], axis=1)[order]
        self._head, self._tail = 0, slots.size
        self.records = total

    def _skip_dead(self) -> bool:
        self._head = int(_first_live(self._entries, self._stamp, self._head, self._tail))
        return self._head < self._tail

    def extent_records(self) -> int:
        """Records from the oldest footprint of an open window to the end of the log: q."""
        return self.records - self.oldest_record()

    def oldest_record(self) -> int:
        """The record number of the oldest footprint that recovery needs."""
        return int(self._entries[self._head, _RECORD]) if self._skip_dead() else self.records

    def oldest_time(self, now: int) -> int:
        """Input time of the oldest footprint (T), or `now` when no window is open."""
        return int(self._entries[self._head, _TIME]) if self._skip_dead() else now

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
        entries = self._entries[self._head : self._tail]
        live = entries[self._stamp[entries[:, _SLOT]] == entries[:, _RECORD]]
        assert np.all(np.diff(entries[:, _RECORD]) > 0), "footprints out of order"
        assert np.all(np.diff(live[:, _TIME]) >= 0), "footprint times run backwards"
        open_slots = np.flatnonzero(opened_at >= 0)
        assert np.array_equal(np.sort(live[:, _SLOT]), open_slots), "a window without a footprint"
