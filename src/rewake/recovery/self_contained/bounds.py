"""What a recovery from a self-contained log would go through, and the policy that bounds it.

The ledger knows the frames that recovery needs: how many rows each holds, and how many bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import NO_SLOTS
from rewake.recovery.policies.policy import CheckpointPolicy, Extent
from rewake.recovery.promises.rates import RecoveryRates

_RECENT = 16
# Of the time that is left for loading and replaying, what each may take; the rest is for the turns
# in which a bound is exceeded already and the CHECKs are still being left.
_SHARE = 0.4
# Records cannot be fewer than open windows; a bound nearer than this is not chased.
_REACHABLE = 1.25


class LoggedTurn(NamedTuple):
    """A frame: its first record's number, its rows (none with the way CHECKS), its bytes."""

    first_record: int
    position: int
    rows: int
    input_bytes: int
    bytes: int


class Ledger:
    """The frames that recovery needs, oldest first; sums cost O(1)."""

    def __init__(self) -> None:
        self._turns: deque[LoggedTurn] = deque()
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self.bytes = 0
        self._rows = 0
        self._input_bytes = 0

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, turn: LoggedTurn, tuples: int) -> None:
        """One more frame, of a batch of so many tuples."""
        self._turns.append(turn)
        self._recent.append(tuples)
        self._count(turn, 1)

    def amend(self, *, input_bytes: int, total_bytes: int) -> None:
        """The newest frame turned out to have so many bytes."""
        newest = self._turns.pop()
        self._count(newest, -1)
        self._turns.append(newest._replace(input_bytes=input_bytes, bytes=total_bytes))
        self._count(self._turns[-1], 1)

    def keep(self, frames: int) -> None:
        """Older frames are not needed any more."""
        while len(self._turns) > frames:
            self._count(self._turns.popleft(), -1)

    def _count(self, turn: LoggedTurn, sign: int) -> None:
        self._rows += sign * turn.rows
        self._input_bytes += sign * turn.input_bytes
        self.bytes += sign * turn.bytes

    @property
    def largest_batch(self) -> int:
        """Tuples of the largest of the last batches, whichever way they went."""
        return max(self._recent, default=0)

    @property
    def newest_tuples(self) -> int:
        """Tuples of the last batch."""
        return self._recent[-1] if self._recent else 0

    def replay_after(self, time: int) -> tuple[int, int]:
        """Rows that would be replayed, and the bytes of the frames' rows that are read for it."""
        rows, size = self._rows, self._input_bytes
        for turn in self._turns:
            if turn.position > time:
                break
            rows -= min(turn.rows, time + 1 - turn.position)
            if turn.position + turn.rows <= time + 1:
                size -= turn.input_bytes
        return rows, size

    def time_with(self, most_rows: int) -> int:
        """The earliest T after which there are at most so many rows."""
        left = most_rows
        for turn in reversed(self._turns):
            if turn.rows > left:
                return turn.position + turn.rows - left - 1
            left -= turn.rows
        return -1

    def records_since(self, frames: int, records: int) -> int:
        """How many records the newest so many frames hold, when there are `records` by now."""
        if len(self._turns) <= frames:
            return 2**62
        first = next(islice(reversed(self._turns), frames - 1, None)).first_record
        return records - first


@dataclass(frozen=True)
class Bounds:
    """Bounds on the rows to replay, the records to load and the frames to read.

    Rows and records stay below the largest of four recent batches, eight for each open window, and
    `least`; frames below `most_frames`.  That takes a CHECK for every eight tuples at most, in the
    long run; a turn leaves no more than one for every four unless a bound is far exceeded.
    """

    least: int = 1_000_000
    most_frames: int = 4_096
    # CHECKs that a turn may leave however few tuples it has.
    fewest_checks: int = 1_024

    def most(self, largest_batch: int, open_windows: int) -> int:
        """The bound on rows, and on records."""
        return max(4 * largest_batch, 8 * open_windows, self.least)


class Within(NamedTuple):
    """How long a recovery may take, and what its parts cost here."""

    target_ms: float
    rates: RecoveryRates

    def most(self, largest_batch: int, open_windows: int) -> tuple[float, float]:
        """The most rows to replay and records to load, each for its share of the time.

        No less than can be reached: the newest batch, and a record for every open window.
        """
        rates = self.rates
        left_us = (self.target_ms - rates.fixed_ms) * 1e3 - open_windows * rates.part_us
        each_us = _SHARE * max(left_us, 0.0)
        rows = max(each_us / rates.replay_us, largest_batch, 1)
        return rows, max(each_us / rates.load_us, _REACHABLE * open_windows, 1)


class KeepBounds(CheckpointPolicy):
    """The policy: CHECKs of the windows with the oldest footprints, while a bound is exceeded.

    With a time that recovery may take, `within`, the bounds are what that leaves room for.
    """

    def __init__(self, bounds: Bounds, ledger: Ledger) -> None:
        self._bounds = bounds
        self._ledger = ledger
        self.within: Within | None = None

    def checks(self, extent: Extent) -> Int32s:
        """The oldest windows that keep the bounds from being met."""
        ledger, order, bounds = self._ledger, extent.order, self._bounds
        if extent.open_windows == 0:
            return NO_SLOTS
        most = bounds.most(ledger.largest_batch, extent.open_windows)
        most_rows, most_records = float(most), float(most)
        if self.within is not None:
            in_time = self.within.most(ledger.largest_batch, extent.open_windows)
            most_rows, most_records = min(most_rows, in_time[0]), min(most_records, in_time[1])
        rows, _ = ledger.replay_after(order.oldest_time(extent.position))
        over = max(
            rows / most_rows, extent.records / most_records, len(ledger) / bounds.most_frames
        )
        if over <= 1:
            return NO_SLOTS
        since = ledger.records_since(bounds.most_frames, order.records)
        return order.overdue(
            most_records=min(int(most_records), since),
            oldest_time=ledger.time_with(int(most_rows)),
            limit=self._limit(over),
        )

    def _limit(self, over: float) -> int:
        if over > 4:
            return 2**62
        tuples = self._ledger.newest_tuples
        return max(tuples if over > 2 else tuples // 4, self._bounds.fewest_checks)
