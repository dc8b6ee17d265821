"""The interface of checkpoint policies, and what a policy is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from rewake.model.errors import UsageError
from rewake.operators.columns.arrays import Int32s
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.footprint_order import FootprintOrder
from rewake.recovery.promises.outlook import Outlook
from rewake.recovery.promises.rates import RecoveryRates


class Extent(NamedTuple):
    """The eventual checkpoint as it stands after a turn.

    `now_ms` is the host's time, `clock` the stream's; `position` is the last input position.
    """

    order: FootprintOrder
    operator: StatefulOperator
    position: int
    clock: int
    now_ms: float

    @property
    def open_windows(self) -> int:
        """N: how many windows are open."""
        return self.operator.open_parts

    @property
    def records(self) -> int:
        """q: records that recovery would go through."""
        return self.order.extent_records()

    @property
    def tuples(self) -> int:
        """u: input tuples that recovery would replay."""
        return self.position - self.oldest_time

    @property
    def oldest_time(self) -> int:
        """T: the input position of the oldest footprint that recovery would load."""
        return self.order.oldest_time(self.position)

    def opened_before(self, position: int) -> int:
        """How many open windows were opened by a tuple before `position`."""
        opened_at = self.operator.opened_at
        return int(np.count_nonzero((opened_at >= 0) & (opened_at < position)))


# Chooses the windows that leave a CHECK at the end of a turn, by their slots.
Choice = Callable[[Extent], Int32s]


class Promise(Protocol):
    """How long a crash may cost, as somebody was promised."""

    # What the parts of a recovery cost: the host keeps it true.
    rates: RecoveryRates

    def outlook(self, extent: Extent) -> Outlook:
        """What a crash now would cost, and what to do when the promise cannot be kept."""


class CheckpointPolicy(ABC):
    """Chooses the windows that leave a CHECK at the end of a turn."""

    @abstractmethod
    def checks(self, extent: Extent) -> Int32s:
        """Slots of the windows to checkpoint now, oldest footprint first."""

    @property
    def promise(self) -> Promise | None:
        """What it goes by, if a time was promised."""
        return None


class OpenOnly(CheckpointPolicy):
    """No CHECKs at all: the paper's baseline, cheapest to run and slowest to recover (CEC IV.A)."""

    def checks(self, extent: Extent) -> Int32s:  # noqa: ARG002
        """None, ever."""
        return np.zeros(0, np.int32)


class Budget:
    """Checkpointing confined to `interval_ms` out of every `period_ms` (CI and CP, CEC III).

    Time is turned into a number of CHECKs by what one costs, which the host measures.
    """

    def __init__(self, interval_ms: float, period_ms: float, check_us: float) -> None:
        if interval_ms <= 0 or period_ms < interval_ms or check_us <= 0:
            raise UsageError(
                f"a budget of {interval_ms} ms every {period_ms} ms at {check_us} us each "
                "cannot be kept: all must be positive, and the interval within the period"
            )
        self._interval_ms = interval_ms
        self._period_ms = period_ms
        self._check_us = check_us
        self._period_start_ms = float("-inf")
        self._left = 0

    def left(self, now_ms: float) -> int:
        """How many CHECKs may be taken now; each period starts with a full interval."""
        if now_ms >= self._period_start_ms + self._period_ms:
            self._period_start_ms = now_ms
            self._left = max(1, int(self._interval_ms * 1000 / self._check_us))
        return self._left

    def spend(self, checks: int) -> None:
        """So many have been taken."""
        self._left -= checks
