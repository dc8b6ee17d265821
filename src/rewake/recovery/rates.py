"""What the parts of a recovery cost on this machine, and what a crash now would cost (CEC III.A).

    recovery = fixed + records * load + tuples * replay

`fixed` is what does not depend on the state (noticing, connecting, opening the log), on top of what
it takes whoever restarts processes to start one.  The costs begin as they were calibrated and are
kept current: every turn tells what a tuple costs, every CHECK what a CHECK costs, and every
recovery what loading and replaying really took.

A prediction is meant to hold, so costs are estimated as networks estimate their timeouts (Jacobson
1988): the mean and twice the mean deviation of what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rewake.model.errors import UsageError

__all__ = ["Costs", "Estimate", "RecoveryRates"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds per record loaded, tuple replayed, tuple processed and CHECK; and the rest.

    The defaults are those of a slow machine: too high is safe, and is corrected by what is seen.
    """

    load_us: float = 0.5
    replay_us: float = 0.1
    work_us: float = 0.05
    check_us: float = 0.5
    fixed_ms: float = 100.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise UsageError(f"a cost must be positive, but {name} is {value}")

    def to_json(self) -> dict[str, float]:
        """As a mapping, to be kept in a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, float]) -> Costs:
        """What `to_json` gave."""
        try:
            return cls(**stored)
        except TypeError as error:
            raise UsageError(f"these are no costs: {error}") from error


class Estimate:
    """A cost that varies: `mean`, and `high`, which few samples exceed."""

    def __init__(self, first: float) -> None:
        self.mean = first
        self.deviation = first / 8

    def observe(self, sample: float) -> None:
        """It was this much now; one that is far off counts, but as no more than three times."""
        error = min(sample, 3 * self.mean) - self.mean
        self.mean += error / 8
        self.deviation += (abs(error) - self.deviation) / 4

    @property
    def high(self) -> float:
        """What it will hardly exceed."""
        return self.mean + 2 * self.deviation


class RecoveryRates:
    """The costs of one fragment's recovery, as they are known now."""

    def __init__(self, costs: Costs | None = None) -> None:
        self.start_from(costs or Costs())

    def start_from(self, costs: Costs) -> None:
        """Forget what was seen: this is what was calibrated."""
        self._load = Estimate(costs.load_us)
        self._work = Estimate(costs.work_us)
        self._check = Estimate(costs.check_us)
        self._fixed = Estimate(costs.fixed_ms)
        # A replayed tuple costs this many times what a processed one does: it is made again, sent
        # and applied, but leaves no footprint.
        self._replay_ratio = Estimate(costs.replay_us / costs.work_us)

    # --- what is seen ------------------------------------------------------------------------

    def processed(self, tuples: int, elapsed_us: float) -> None:
        """Turns without CHECKs took so long."""
        if tuples > 0:
            self._work.observe(elapsed_us / tuples)

    def checked(self, checks: int, elapsed_us: float) -> None:
        """CHECKs took so long, beyond what the turn would have."""
        if checks > 0:
            self._check.observe(max(elapsed_us, 0.0) / checks)

    def recovered(
        self, *, records: int, load_us: float, tuples: int, replay_us: float, fixed_ms: float
    ) -> None:
        """A recovery took so long.  Small ones tell more of the rest than of the rates."""
        if records >= 1000:
            self._load.observe(load_us / records)
        if tuples >= 10_000:
            self._replay_ratio.observe(replay_us / tuples / self._work.mean)
        self._fixed.observe(fixed_ms)

    # --- what follows ------------------------------------------------------------------------

    @property
    def load_us(self) -> float:
        """For a record of the extent."""
        return self._load.high

    @property
    def replay_us(self) -> float:
        """For a tuple that is replayed."""
        return self._work.high * self._replay_ratio.mean

    @property
    def work_us(self) -> float:
        """For a tuple that is processed, on average."""
        return self._work.mean

    @property
    def check_us(self) -> float:
        """For a CHECK."""
        return max(self._check.high, 1e-3)

    @property
    def fixed_ms(self) -> float:
        """For what does not depend on the state."""
        return self._fixed.high

    def predicted_ms(self, records: float, tuples: float) -> float:
        """How long a recovery would take if the crash were now."""
        return self.fixed_ms + (records * self.load_us + tuples * self.replay_us) / 1e3

    @property
    def costs(self) -> Costs:
        """The means, to start from next time."""
        return Costs(
            load_us=self._load.mean,
            replay_us=self._work.mean * self._replay_ratio.mean,
            work_us=self._work.mean,
            check_us=max(self._check.mean, 1e-3),
            fixed_ms=self._fixed.mean,
        )
