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
stretch longer than `_PURSE_MS`; a target that cannot be met is not chased: there is a best that can
be reached, and `outlook` says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rewake.model.errors import UsageError
from rewake.operators.arrays import Array, Int32s
from rewake.operators.stateful import NO_SLOTS
from rewake.recovery.policies.policy import Extent
from rewake.recovery.rates import RecoveryRates

__all__ = ["Outlook", "RecoverWithin"]

# Between two looks at the order of windows: short against any target, long against a turn.
_LOOK_MS = 20.0
# Budget that was not used may be saved up for so long: CHECKs hold up a turn no longer than that
# times the budget.
_PURSE_MS = 100.0
# A shortage that lasts so long is told.
_SHORT_MS = 1000.0
# Of the target, left for what rates do not foresee.
_MARGIN = 0.15
# Below this share of what may be spent nothing has to be looked at.
_EARLIEST = 0.3
# From this share on a window may leave its CHECK a little early.
_NEARLY = 0.9
# Windows that are looked at together.
_MOST_AT_ONCE = 262_144
# A target below this times the best that can be reached is not chased.
_REACHABLE = 1.25


class Outlook(NamedTuple):
    """What a crash now would cost, in ms, beside the target; without `advice` all is well."""

    predicted_ms: float
    target_ms: float
    best_ms: float
    checks: int
    advice: str = ""

    @property
    def margin_ms(self) -> float:
        """How much sooner than promised."""
        return self.target_ms - self.predicted_ms


class RecoverWithin:
    """Keeps the predicted recovery under `target_ms`; `budget` is the share of time for CHECKs."""

    def __init__(self, target_ms: float, rates: RecoveryRates, *, budget: float = 0.05) -> None:
        if target_ms <= 0:
            raise UsageError(f"recover_within must be longer than nothing, but is {target_ms} ms")
        if not 0 < budget <= 1:
            raise UsageError(
                f"checkpoint_budget is a share above 0% and up to 100%, not {budget:.0%}; with no "
                "budget there are no CHECKs, and no promise: leave recover_within out instead"
            )
        self.target_ms = target_ms
        self.rates = rates
        self._budget = budget
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
        oldest = self._cost_us(extent.records, extent.tuples)
        spendable = self._spendable_us(extent)
        if oldest < _EARLIEST * spendable or extent.now_ms < self._next_look_ms:
            return NO_SLOTS
        self._next_look_ms = extent.now_ms + _LOOK_MS
        due = self._due(extent, spendable)
        affordable = int(self._purse_us / self.rates.check_us)
        self._note_shortage(extent.now_ms, short=due.size > affordable)
        chosen = due[:affordable]
        self._purse_us -= chosen.size * self.rates.check_us
        self._checks += chosen.size
        return chosen

    def _due(self, extent: Extent, spendable: float) -> Int32s:
        """The windows that must not wait for the next look."""
        oldest = extent.order.oldest(_MOST_AT_ONCE)
        if oldest.slots.size == 0:
            return NO_SLOTS
        number = np.arange(oldest.slots.size)
        # What recovery costs as long as this window's footprint is the end of the extent; the
        # CHECKs of those before it are records, too.
        records = extent.order.records + number - oldest.records
        cost = self._cost_us(records, extent.position - oldest.times)
        growth = max(self._growth, 1e-9)
        left = (spendable - cost) / growth - _LOOK_MS * 1e3
        in_time = np.maximum(left, 0) * self._budget / self.rates.check_us
        behind = int(np.ceil(np.max(number + 1 - in_time)))
        # Of those that are nearly due, as many as would come due if all ages were as frequent:
        # after a few rounds they are, and no turn has to leave many CHECKs.
        nearly = int(np.count_nonzero(cost > _NEARLY * spendable))
        even = int(np.ceil(extent.open_windows * _LOOK_MS * 1e3 * growth / spendable))
        return oldest.slots[: max(behind, min(nearly, even), 0)].astype(np.int32)

    def _cost_us(self, records: Array | float, tuples: Array | float) -> Array:
        return np.asarray(records * self.rates.load_us + tuples * self.rates.replay_us)

    def _spendable_us(self, extent: Extent) -> float:
        """What loading and replaying may take: by the target, or what can be reached at best."""
        wanted = (self.target_ms * (1 - _MARGIN) - self.rates.fixed_ms) * 1e3
        return max(wanted, _REACHABLE * extent.open_windows * self.rates.load_us)

    # --- time --------------------------------------------------------------------------------

    def _pass_time(self, extent: Extent) -> None:
        """Fill the purse, and see how fast the extent grows."""
        now = extent.now_ms
        if self._now_ms is None:
            self._now_ms = self._moved_ms = now
            self._position, self._records = extent.position, extent.order.records
            self._purse_us = _PURSE_MS * 1e3 * self._budget
        passed, self._now_ms = max(now - self._now_ms, 0.0), now
        most = _PURSE_MS * 1e3 * self._budget
        self._purse_us = min(self._purse_us + passed * 1e3 * self._budget, most)
        if now - self._moved_ms < _LOOK_MS:
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

    def outlook(self, extent: Extent) -> Outlook:
        """The prediction as it stands, and what to do when the target cannot be met."""
        predicted = self.rates.predicted_ms(extent.records, extent.tuples)
        best = self.rates.predicted_ms(_REACHABLE * extent.open_windows, 0)
        return Outlook(
            predicted, self.target_ms, best, self._checks, self._advice(extent, predicted, best)
        )

    def _advice(self, extent: Extent, predicted: float, best: float) -> str:
        target, since = self.target_ms, self._short_since_ms
        if best > target * (1 - _MARGIN):
            return (
                f"{target:.0f} ms cannot be met: loading {extent.open_windows:,} open windows "
                f"takes {best:.0f} ms at best; use more shards, or give recover_within more time"
            )
        if since is not None and extent.now_ms - since > _SHORT_MS and predicted > target:
            return (
                f"{target:.0f} ms cannot be met within the budget: a crash now would cost "
                f"{predicted:.0f} ms; raise checkpoint_budget from {self._budget:.0%}, use more "
                "shards, or give recover_within more time"
            )
        return ""
