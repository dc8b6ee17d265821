"""`recover_within`: the fewest CHECKs that keep a crash's cost under what the user said.

Recovery time is made of parts that are known while the query runs (see `rates`); the end of the
extent decides both how many records are loaded and how many tuples are replayed.  A CHECK moves the
end of the extent from the oldest window to the next, and is wasted on a window that closes anyway
before it matters.  So every CHECK is left as late as it can be: a window has a deadline, the moment
at which recovery would take longer than the target because of it; CHECKs cost time, of which no
more than the budget may be spent; so the i-th oldest window must be begun with before the deadline
of any window that comes after it leaves too little time for those between (earliest deadline first,
as lazily as possible).  Windows that share an age, after a burst, are thus begun with early, all
others at the last moment.

What always holds: the choice never changes results; no more than the budget is spent, over any
stretch longer than `_PURSE_MS`, or than it takes to save up for one CHECK of a large part; a target
that cannot be met is not chased: there is a best that can be reached, and `outlook` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rewake.model.errors import UsageError
from rewake.model.units import duration_ns, share
from rewake.operators.columns.arrays import Array, Int32s
from rewake.operators.stateful import NO_SLOTS
from rewake.recovery.footprint_order import Footprints
from rewake.recovery.policies.policy import CheckpointPolicy, Extent
from rewake.recovery.promises.outlook import Outlook
from rewake.recovery.promises.rates import RecoveryRates

__all__ = ["RecoverWithin", "RecoverWithinPolicy", "within_ms"]

# Between two looks at the order of windows: short against the target, long against a turn.
_LOOKS_IN_TARGET = 10
_SHORTEST_LOOK_MS, _LONGEST_LOOK_MS = 10.0, 100.0
# Of the budget, the most that looks may take.
_FOR_LOOKS = 0.5
# Budget that was not used may be saved up for so long: CHECKs hold up a turn no longer than that
# times the budget.
_PURSE_MS = 100.0
# A shortage that lasts so long is told.
_SHORT_MS = 1000.0
# Below this share of what may be spent nothing has to be looked at.
_EARLIEST = 0.3
# From this share on a window may leave its CHECK a little early.
_NEARLY = 0.9
# Windows that are looked at one by one, and about so many footprints of those behind them.
_HEAD = 1024
_SAMPLE = 16_384
# A target below this times the best that can be reached is not chased, nor is less loading and
# replaying than this share of what is fixed.
_REACHABLE = 1.25
_WORTHWHILE = 0.25


@dataclass(frozen=True, slots=True)
class RecoverWithin:
    """How long a crash may cost beyond the restart of a process, such as "1s".

    At most `budget` of the time is spent on CHECKs that keep to it.
    """

    time: str
    budget: str | float = "5%"

    def __post_init__(self) -> None:
        self.begin()  # so that what cannot be is refused here

    def begin(self) -> RecoverWithinPolicy:
        """A new policy, for one fragment."""
        target_ms = within_ms(self.time)
        return RecoverWithinPolicy(target_ms, RecoveryRates(), budget=share(self.budget))


def within_ms(time: str) -> float:
    """What a user has said for `recover_within`, in milliseconds; `UsageError` if it is no time."""
    try:
        milliseconds = duration_ns(time) / 1e6
    except UsageError as error:
        raise UsageError(
            f'recover_within is how long a crash may cost, such as "1s": {error}'
        ) from error
    if milliseconds <= 0:
        raise UsageError(
            f'recover_within must be longer than nothing, such as "1s", but is {time!r}'
        )
    return milliseconds


class RecoverWithinPolicy(CheckpointPolicy):
    """Keeps the predicted recovery under `target_ms`; `budget` is the share of time for CHECKs."""

    def __init__(self, target_ms: float, rates: RecoveryRates, *, budget: float = 0.05) -> None:
        if target_ms <= 0:
            raise UsageError(f"target_ms must be longer than nothing, but is {target_ms}")
        if not 0 < budget <= 1:
            raise UsageError(
                f"checkpoint_budget is a share above 0% and up to 100%, not {budget:.0%}; with no "
                "budget there are no CHECKs, and no promise: leave recover_within out instead"
            )
        self.target_ms = target_ms
        self.rates = rates
        self._budget = budget
        look_ms = max(target_ms / _LOOKS_IN_TARGET, _SHORTEST_LOOK_MS)
        self._look_ms = min(look_ms, _LONGEST_LOOK_MS)
        self._now_ms: float | None = None
        self._purse_us = 0.0
        self._next_look_ms = float("-inf")
        self._position = 0
        self._records = 0
        self._moved_ms = 0.0
        # How much longer a recovery gets in a microsecond, in microseconds.
        self._growth = 0.0
        self._checks = 0
        self._short_since_ms: float | None = None

    # --- the policy --------------------------------------------------------------------------

    def checks(self, extent: Extent) -> Int32s:
        """The oldest windows, as many as must leave a CHECK now."""
        self._pass_time(extent)
        if extent.now_ms < self._next_look_ms:
            return NO_SLOTS
        oldest = float(self._cost_us(extent.records, extent.tuples))
        spendable = self._spendable_us(extent)
        if self._all_in_time(extent, oldest, spendable):
            return NO_SLOTS
        dear_ms = self.rates.look_us / (self._budget * _FOR_LOOKS) / 1e3
        self._next_look_ms = extent.now_ms + max(self._look_ms, dear_ms)
        affordable = max(int(self._purse_us / self.rates.check_us), 0)
        started_us = self.rates.moment_us()
        due = self._due(extent, spendable, affordable)
        # Looking is paid for out of the same purse.
        self._purse_us -= self.rates.looked(self.rates.moment_us() - started_us)
        self._note_shortage(extent.now_ms, short=due.size > affordable)
        chosen = due[:affordable]
        self._purse_us -= chosen.size * self.rates.check_us
        self._checks += chosen.size
        return chosen

    def _all_in_time(self, extent: Extent, oldest: float, spendable: float) -> bool:
        """Whether all windows could still be begun with at the next look: none need be looked at.

        Said of the oldest, it holds for all the more.
        """
        if oldest < _EARLIEST * spendable:
            return True
        in_time = float(self._in_time(np.asarray(oldest), spendable))
        return oldest < _NEARLY * spendable and extent.open_windows <= in_time

    def _in_time(self, cost: Array, spendable: float) -> Array:
        """How many CHECKs can be left from the next look on before a cost gets too high."""
        left = (spendable - cost) / max(self._growth, 1e-9) - self._look_ms * 1e3
        return np.maximum(left, 0) * self._budget / self.rates.check_us

    def _due(self, extent: Extent, spendable: float, affordable: int) -> Int32s:
        """The windows that must not wait for the next look; of more than are affordable, some.

        The oldest are looked at one by one, and of those behind them a sample: it tells of windows
        that share an age, which must be begun with early.
        """
        head = extent.order.oldest(_HEAD)
        if head.slots.size == 0:
            return NO_SLOTS
        cost, behind = self._behind(extent, head, np.arange(1, head.slots.size + 1), spendable)
        nearly = int(np.count_nonzero(cost > _NEARLY * spendable))
        if head.slots.size == _HEAD and behind <= affordable:
            rest, ranks = extent.order.sampled(_SAMPLE, beyond=_HEAD)
            cost, later = self._behind(extent, rest, ranks, spendable)
            behind = max(behind, later)
            late = ranks[cost > _NEARLY * spendable]
            nearly = int(late.max(initial=nearly))
        # Of those that are nearly due, as many as would come due if all ages were as frequent:
        # after a few rounds they are, and no turn has to leave many CHECKs.
        grown = self._look_ms * 1e3 * self._growth
        even = int(np.ceil(extent.open_windows * grown / spendable))
        due = min(max(int(np.ceil(behind)), min(nearly, even), 0), affordable + 1)
        chosen = head if due <= head.slots.size else extent.order.oldest(due)
        return chosen.slots[:due].astype(np.int32)

    def _behind(
        self, extent: Extent, windows: Footprints, ranks: Array, spendable: float
    ) -> tuple[Array, float]:
        """What recovery costs because of each window, and how many of the oldest are due now.

        `ranks`: how many windows are as old or older.  Those must leave their CHECKs, too, before
        the cost gets too high, and their CHECKs are records.
        """
        records = extent.order.records + ranks - 1 - windows.records
        cost = self._cost_us(records, extent.position - windows.times)
        late = ranks - self._in_time(cost, spendable)
        return cost, float(late.max(initial=0.0))

    def _cost_us(self, records: Array | float, tuples: Array | float) -> Array:
        return np.asarray(records * self.rates.load_us + tuples * self.rates.replay_us)

    def _spendable_us(self, extent: Extent) -> float:
        """What loading and replaying may take: by the target, or what can be reached at best."""
        wanted = (self.target_ms - self.rates.fixed_ms) * 1e3
        wanted -= extent.open_windows * self.rates.part_us
        least = _WORTHWHILE * self.rates.fixed_ms * 1e3
        return max(wanted, least, _REACHABLE * extent.open_windows * self.rates.load_us)

    # --- time --------------------------------------------------------------------------------

    def _pass_time(self, extent: Extent) -> None:
        """Fill the purse, and see how fast the extent grows."""
        now = extent.now_ms
        if self._now_ms is None:
            self._now_ms = self._moved_ms = now
            self._position, self._records = extent.position, extent.order.records
            self._purse_us = _PURSE_MS * 1e3 * self._budget
        passed, self._now_ms = max(now - self._now_ms, 0.0), now
        # There must be room for the CHECK of a large part, or none would ever be left.
        most = max(_PURSE_MS * 1e3 * self._budget, self.rates.check_us)
        self._purse_us = min(self._purse_us + passed * 1e3 * self._budget, most)
        if now - self._moved_ms < self._look_ms:
            return
        tuples, records = extent.position - self._position, extent.order.records - self._records
        grown = float(self._cost_us(records, tuples)) / ((now - self._moved_ms) * 1e3)
        # A burst counts at once, a lull little by little: the next burst may come any time.
        self._growth = max(grown, self._growth + (grown - self._growth) / 16)
        self._position, self._records = extent.position, extent.order.records
        self._moved_ms = now

    def _note_shortage(self, now_ms: float, *, short: bool) -> None:
        if not short:
            self._short_since_ms = None
        elif self._short_since_ms is None:
            self._short_since_ms = now_ms

    # --- for people --------------------------------------------------------------------------

    @property
    def promise(self) -> RecoverWithinPolicy:
        """Its own."""
        return self

    def outlook(self, extent: Extent) -> Outlook:
        """The prediction as it stands, and what to do when the target cannot be met."""
        parts = extent.open_windows
        predicted = self.rates.predicted_ms(extent.records, extent.tuples, parts)
        worst = self.rates.at_worst_ms(extent.records, extent.tuples, parts)
        best = self.rates.at_worst_ms(_REACHABLE * parts, 0, parts)
        advice = self._under_pressure(self._advice(extent, worst, best), worst)
        return Outlook(predicted, worst, self.target_ms, best, self._checks, advice)

    def _under_pressure(self, advice: str, worst: float) -> str:
        """What is said while the machine gives less than usual: that it is so, and what follows."""
        words = self.rates.pressure.words
        if not words or worst <= self.target_ms:
            return advice
        return f"{words}: " + (
            advice
            or f"a crash now may cost up to {worst:.0f} ms where {self.target_ms:.0f} are promised"
        )

    def _advice(self, extent: Extent, worst: float, best: float) -> str:
        target, since = self.target_ms, self._short_since_ms
        if self.rates.fixed_ms >= target:
            return (
                f"{target:.0f} ms cannot be met: noticing a crash and opening the log alone take "
                f"{self.rates.fixed_ms:.0f} ms here; give recover_within more time"
            )
        if best > target:
            return (
                f"{target:.0f} ms cannot be met: loading {extent.open_windows:,} open windows "
                f"takes {best:.0f} ms at best; use more shards, or give recover_within more time"
            )
        if since is not None and extent.now_ms - since > _SHORT_MS and worst > target:
            return (
                f"{target:.0f} ms cannot be met within the budget: a crash now would cost up to "
                f"{worst:.0f} ms; raise checkpoint_budget from {self._budget:.0%}, use more "
                "shards, or give recover_within more time"
            )
        return ""
