"""Slow windows in shots: every window each T, windows open longer than H, M at a time (Thesis 4.2).

"If we set to M the number of active slow windows we can comfortably produce checkpoints for at each
shot and N the total number of active slow windows, then we checkpoint the entire N windows in
S = N/M shots, with each shot performed every T/S milliseconds", all in virtual (tuple) time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

import numpy as np

from rewake.model.errors import UsageError
from rewake.model.given import check_number, check_whole
from rewake.model.stream_event import NO_TIME
from rewake.operators.columns.arrays import Int32s
from rewake.recovery.policies.policy import CheckpointPolicy, Extent

_ANY_NUMBER = 2**62


@dataclass(frozen=True, slots=True)
class Shots:
    """All windows that are open longer than `slow_after` every so often, `windows` at a time.

    Times are in the unit of the stream's event time, or in ms where there is none.
    """

    every: float
    slow_after: float = 0
    windows: int = 1000

    def __post_init__(self) -> None:
        check_number("Shots: every", self.every)
        check_number("Shots: slow_after", self.slow_after)
        check_whole("Shots: windows", self.windows)
        self.begin()  # so that what cannot be is refused here

    def begin(self) -> ShotsPolicy:
        """A new policy, for one fragment."""
        return ShotsPolicy(**asdict(self))


class ShotsPolicy(CheckpointPolicy):
    """T, H and M; times in the unit of the stream's event time, or ms of the host without one."""

    def __init__(self, *, every: float, slow_after: float, windows: int) -> None:
        if every <= 0 or slow_after < 0 or windows < 1:
            raise UsageError(
                f"shots of {windows} windows every {every} for windows open {slow_after}: the "
                "period and the number must be positive, the threshold not negative"
            )
        self._every = every
        self._slow_after = slow_after
        self._at_once = windows
        self._next_shot = float("-inf")
        self._round_start = float("-inf")
        self._between = every
        # When which positions came, to turn "open for H" into "opened before position p".
        self._history: deque[tuple[float, int]] = deque()
        self._slow_before = 0

    def checks(self, extent: Extent) -> Int32s:
        """The slow windows with the oldest footprints, M of them, when a shot is due."""
        now = extent.now_ms if extent.clock == NO_TIME else float(extent.clock)
        self._history.append((now, extent.position + 1))
        while self._history and self._history[0][0] <= now - self._slow_after:
            self._slow_before = self._history.popleft()[1]
        if now < self._next_shot:
            return np.zeros(0, np.int32)
        if now >= self._round_start + self._every:
            self._start_round(now, extent.opened_before(self._slow_before))
        self._next_shot = now + self._between
        # A footprint older than H means the window is older than H, and the reverse holds for
        # all that have not been checkpointed in this round.
        return extent.order.overdue(
            most_records=_ANY_NUMBER, oldest_time=self._slow_before - 1, limit=self._at_once
        )

    def _start_round(self, now: float, slow: int) -> None:
        self._round_start = now
        shots = max(1, -(-slow // self._at_once))
        self._between = self._every / shots
