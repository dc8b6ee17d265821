"""What the parts of a recovery cost on this machine, and what a crash now would cost (CEC III.A).

    recovery = fixed + records * load + tuples * replay (+ parts * part, where parts are large)

`fixed` is what does not depend on the state (noticing, connecting, opening the log), on top of what
it takes whoever restarts processes to start one.  The costs begin as they were calibrated and are
kept current: every turn tells what a tuple costs, every CHECK what a CHECK costs, and every
recovery what loading and replaying really took.  A host keeps them over restarts (`kept`).

A window is a record like any other.  A pane of a join is not: it may be megabytes, and loading it
takes about what leaving its CHECK took.  So what open parts take to load is reckoned by that, where
it is much.

A prediction is what is to be expected: it is made of means.  A promise is meant to hold: each part,
fixed, load and replay, is taken as many times as its `Margin` says, which is learnt from how far
predictions were off, and as many times again as the machine is under more `Pressure` than usual.
What a recovery will hardly exceed is `at_worst_ms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rewake.model.errors import UsageError
from rewake.recovery.promises.margins import Margin
from rewake.recovery.promises.pressure import Pressure

__all__ = ["Costs", "Estimate", "RecoveryRates"]

# What the latest sample counts, of a cost that is seen all the time, and of one seen seldom.
_OFTEN = 1 / 32
_SELDOM = 1 / 8
# A sample of the former takes so many tuples, or CHECKs: a few tell more of the turn than of them.
_TUPLES_IN_SAMPLE = 50_000
_CHECKS_IN_SAMPLE = 2_000
# Of tuples that take long, as with a user's function over each key, so much work is a sample, and
# so much replaying tells of them.
_LONG_US = 50_000.0
# A sample this many times the mean may be chance; two in a row are not.
_FAR = 3.0
# CHECKs of so many bytes tell of themselves, however few they are.
_LARGE_BYTES = 65_536
# From here on leaving a CHECK, and loading it, takes far more than a record does.
_LARGE_US = 20.0
# Recoveries smaller than this tell more of the fixed part than of the rates.
_MANY_RECORDS = 20_000
_MANY_TUPLES = 50_000
# A cost is never nothing.
_LEAST = 1e-3


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
    # How many times that each part may take, as far as rehearsals show.
    fixed_margin: float = 2.0
    load_margin: float = 1.5
    replay_margin: float = 1.5

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
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
    """The mean of a cost that varies.

    What it begins with counts as one sample, so the first few that are seen count for much; later
    ones count `weight`.
    """

    def __init__(self, first: float, weight: float = _SELDOM) -> None:
        self.mean = first
        self._weight = weight
        self._seen = 1

    def observe(self, sample: float, *, sure: bool = False) -> None:
        """It was this much now; one that is far off counts as no more than three times the mean.

        Unless it is `sure` that it tells of the cost and not of what held it up.
        """
        self._seen += 1
        weight = max(1 / self._seen, self._weight)
        error = (sample if sure else min(sample, _FAR * self.mean)) - self.mean
        self.mean += error * weight

    def kept(self) -> list[float]:
        """All of it, as numbers."""
        return [self.mean, self._seen]

    def go_on(self, kept: Sequence[float]) -> None:
        """From what `kept` gave."""
        mean, seen = map(float, kept)
        if not (0 < mean < math.inf and 1 <= seen < math.inf):
            raise UsageError(f"this is no estimate of a cost: {list(kept)}")
        self.mean, self._seen = mean, int(seen)


class _Tally:
    """Gathers what many took together until it makes a sample: of so many, or of so long."""

    def __init__(self, estimate: Estimate, enough: int, long_us: float = math.inf) -> None:
        self._estimate = estimate
        self._enough = enough
        self._long_us = long_us
        self._count = 0
        self._elapsed_us = 0.0
        self._was_far = False

    def add(self, count: int, elapsed_us: float) -> None:
        self._count += count
        self._elapsed_us += elapsed_us
        if self._count >= self._enough or (self._count and self._elapsed_us >= self._long_us):
            sample = max(self._elapsed_us / self._count, _LEAST)
            far = sample > _FAR * self._estimate.mean
            self._estimate.observe(sample, sure=far and self._was_far)
            self._count, self._elapsed_us, self._was_far = 0, 0.0, far


def _learn(margin: Margin, estimate: Estimate, took: float) -> None:
    """From what a part of a recovery took: first how far off it was, then what to expect."""
    took = max(took, _LEAST)
    margin.observe(estimate.mean, took)
    estimate.observe(took)


class RecoveryRates:
    """The costs of one fragment's recovery, as they are known now."""

    def __init__(self, costs: Costs | None = None) -> None:
        # What the machine is under now is not a matter of what was learnt.
        self.pressure = Pressure()
        self.start_from(costs or Costs())

    def start_from(self, costs: Costs) -> None:
        """Forget what was seen: this is what was calibrated."""
        self._load = Estimate(costs.load_us)
        self._work = Estimate(costs.work_us, _OFTEN)
        self._check = Estimate(costs.check_us, _OFTEN)
        self._fixed = Estimate(costs.fixed_ms)
        # A replayed tuple costs this many times what a processed one does: it is made again, sent
        # and applied, but leaves no footprint.
        self._replay_ratio = Estimate(costs.replay_us / costs.work_us)
        self._fixed_margin = Margin(costs.fixed_margin)
        self._load_margin = Margin(costs.load_margin)
        self._replay_margin = Margin(costs.replay_margin)
        self._look_us = self._looked_us = 0.0
        self._worked = _Tally(self._work, _TUPLES_IN_SAMPLE, _LONG_US)
        self._checked = _Tally(self._check, _CHECKS_IN_SAMPLE)

    # --- over restarts -----------------------------------------------------------------------

    def _estimates(self) -> dict[str, Estimate | Margin]:
        return {
            "load_us": self._load,
            "work_us": self._work,
            "check_us": self._check,
            "fixed_ms": self._fixed,
            "replay_ratio": self._replay_ratio,
            "fixed_margin": self._fixed_margin,
            "load_margin": self._load_margin,
            "replay_margin": self._replay_margin,
        }

    def kept(self) -> dict[str, list[float]]:
        """All that was seen, to be kept in a file."""
        return {name: estimate.kept() for name, estimate in self._estimates().items()}

    def go_on(self, kept: Mapping[str, Sequence[float]]) -> None:
        """From what `kept` gave in an earlier life; raises `UsageError` and changes nothing."""
        found = RecoveryRates(self.costs)
        try:
            for name, estimate in found._estimates().items():
                estimate.go_on(kept[name])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"these are no rates of recovery: {error}") from error
        for name, estimate in self._estimates().items():
            estimate.go_on(kept[name])

    # --- what is seen ------------------------------------------------------------------------

    # The host's clock for work, in seconds; without one, looking at the order of windows is free.
    clock: Callable[[], float] | None = None

    def moment_us(self) -> float:
        """Now, by the host's clock for work."""
        return 0.0 if self.clock is None else self.clock() * 1e6

    def looked(self, elapsed_us: float) -> float:
        """Choosing windows took so long, which neither tuples nor CHECKs are blamed for."""
        self._looked_us += elapsed_us
        self._look_us += (elapsed_us - self._look_us) * _SELDOM
        return elapsed_us

    def _without_looks(self, elapsed_us: float) -> float:
        rest, self._looked_us = max(elapsed_us - self._looked_us, 0.0), 0.0
        return rest

    def processed(self, tuples: int, elapsed_us: float) -> None:
        """Turns without CHECKs took so long."""
        self._worked.add(tuples, self._without_looks(elapsed_us))

    def checked(self, checks: int, elapsed_us: float, size_bytes: int = 0) -> None:
        """CHECKs of so many bytes in all took so long, beyond what the turn would have."""
        rest = self._without_looks(elapsed_us)
        if size_bytes < checks * _LARGE_BYTES:
            self._checked.add(checks, rest)
        else:
            self._check.observe(max(rest / checks, _LEAST), sure=True)

    def recovered(
        self,
        *,
        records: int,
        load_us: float,
        tuples: int,
        replay_us: float,
        fixed_ms: float,
        parts: int = 0,
    ) -> None:
        """A recovery of so many open parts took so long.

        Where little is loaded or replayed, what that took beyond the rates belongs to the fixed
        part: opening a file and asking for input cost the same for one record as for many.
        """
        costs = self.costs
        load_us = max(load_us - parts * self.part_us, 0.0)
        if records >= _MANY_RECORDS:
            _learn(self._load_margin, self._load, load_us / records)
        else:
            fixed_ms += max(load_us - records * costs.load_us, 0.0) / 1e3
        if tuples >= _MANY_TUPLES or tuples * costs.replay_us >= _LONG_US:
            ratio = replay_us / tuples / costs.work_us
            _learn(self._replay_margin, self._replay_ratio, ratio)
        else:
            fixed_ms += max(replay_us - tuples * costs.replay_us, 0.0) / 1e3
        _learn(self._fixed_margin, self._fixed, fixed_ms)

    # --- what follows ------------------------------------------------------------------------

    @property
    def load_us(self) -> float:
        """For a record of the extent, as far as can be promised."""
        return self._load.mean * self._load_margin.factor * self.pressure.factor

    @property
    def replay_us(self) -> float:
        """For a tuple that is replayed, as far as can be promised."""
        expected = self._work.mean * self._replay_ratio.mean
        return expected * self._replay_margin.factor * self.pressure.factor

    @property
    def work_us(self) -> float:
        """For a tuple that is processed, on average."""
        return self._work.mean

    @property
    def check_us(self) -> float:
        """For a CHECK, on average: a budget is kept over many."""
        return max(self._check.mean, _LEAST)

    @property
    def part_us(self) -> float:
        """For loading an open part, beyond what is the same for any record: mostly nothing."""
        return self.check_us if self.check_us >= _LARGE_US else 0.0

    @property
    def look_us(self) -> float:
        """For choosing windows once, on average."""
        return self._look_us

    @property
    def fixed_ms(self) -> float:
        """For what does not depend on the state, as far as can be promised."""
        return self._fixed.mean * self._fixed_margin.factor * self.pressure.factor

    def predicted_ms(self, records: float, tuples: float, parts: float = 0) -> float:
        """How long a recovery is expected to take if the crash were now, with these open parts."""
        costs = self.costs
        load_us = records * costs.load_us + parts * self.part_us
        return costs.fixed_ms + (load_us + tuples * costs.replay_us) / 1e3

    def at_worst_ms(self, records: float, tuples: float, parts: float = 0) -> float:
        """How long it will hardly take longer than."""
        load_us = records * self.load_us + parts * self.part_us
        return self.fixed_ms + (load_us + tuples * self.replay_us) / 1e3

    def figures(self) -> dict[str, float]:
        """For people: the means, which predictions are made of, and what promises are made of."""
        return self.costs.to_json() | {
            "worst_load_us": self.load_us,
            "worst_replay_us": self.replay_us,
            "worst_fixed_ms": self.fixed_ms,
            "pressure": self.pressure.factor,
        }

    @property
    def costs(self) -> Costs:
        """The means."""
        return Costs(
            load_us=self._load.mean,
            replay_us=self._work.mean * self._replay_ratio.mean,
            work_us=self._work.mean,
            check_us=max(self._check.mean, _LEAST),
            fixed_ms=self._fixed.mean,
            fixed_margin=self._fixed_margin.factor,
            load_margin=self._load_margin.factor,
            replay_margin=self._replay_margin.factor,
        )
