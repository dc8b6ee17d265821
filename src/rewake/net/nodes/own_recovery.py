"""What an attempt's own recovery takes, learnt for the next one and kept beside its prediction.

A host tells it when the process registered, when the state was loaded, when input came and when the
replay was over; everything is measured by the host's clock.  What always holds: rates are kept only
while nothing is replayed, because until then they and the figures beside them are those of nobody;
a recovery is kept once, and only where a time was promised.
"""

from __future__ import annotations

import time
from pathlib import Path

from rewake.net.nodes.calibration import HOPS_MS, KeptCosts, go_on_with_rates, keep_rates
from rewake.net.nodes.pressure import counted_now
from rewake.net.nodes.recoveries import KeptRecovery, keep_recovery
from rewake.node.node import Node
from rewake.recovery.promises.rates import Costs, RecoveryRates

__all__ = ["OwnRecovery"]

_KEEP_RATES_SECONDS = 0.5


class OwnRecovery:
    """One attempt of a node, from its registration on."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.replaying = False
        # What is known of the attempt, for people.
        self.timings: dict[str, float] = {}
        self.rates: RecoveryRates | None = None
        # What the life before last kept of itself, its prediction of this recovery among it.
        self._foretold: KeptCosts | None = None
        self._registered = self._replay_started = time.perf_counter()
        self._input_came: float | None = None
        self._loaded = self._loaded_parts = self._replayed = 0
        self._rates_kept = float("-inf")

    def registered(self) -> None:
        """The process asks for its epoch: the restart is over."""
        self._registered = time.perf_counter()

    def loaded(self, node: Node, costs: Costs | None, load_ms: float, *, anew: bool) -> None:
        """Begin with what was calibrated, if the approach goes by what recoveries cost.

        `anew`: there was no log yet, so nothing was recovered.
        """
        self.timings["load_ms"] = load_ms
        self.replaying = node.recovering
        self._replay_started = time.perf_counter()
        self.rates = None if node.recovery is None else node.recovery.rates
        if self.rates is not None:
            self.rates.clock = time.thread_time
            if costs is not None:
                self.rates.start_from(costs)
            self._foretold = go_on_with_rates(self._folder, self._name, self.rates)
        progress = node.progress()
        self._loaded = int(progress.get("extent_records", 0))
        self._loaded_parts = int(progress.get("open_windows", 0))
        if self.replaying:
            self._replayed = node.replay_tuples
        elif not anew:
            self._keep_recovery(node, self._replay_started)

    def took_a_turn(self) -> None:
        """A turn was taken: while replaying, the first says that input has come."""
        if self.replaying and self._input_came is None:
            self._input_came = time.perf_counter()

    def replayed(self, node: Node) -> None:
        """The log's effects are all there again: what comes next is new."""
        self.replaying = False
        now = time.perf_counter()
        self.timings["replay_ms"] = (now - self._replay_started) * 1e3
        if self.rates is not None:
            self._learn(self.rates, now)
            self._keep_recovery(node, now)
            self.keep_rates(node)

    def _learn(self, rates: RecoveryRates, now: float) -> None:
        """What this recovery cost; to wait for the first input costs the same for any amount."""
        load_ms = self.timings["load_ms"]
        replay_ms = 0.0 if self._input_came is None else (now - self._input_came) * 1e3
        rates.recovered(
            records=self._loaded,
            load_us=load_ms * 1e3,
            tuples=self._replayed,
            replay_us=replay_ms * 1e3,
            fixed_ms=max((now - self._registered) * 1e3 - load_ms - replay_ms, 0.0) + HOPS_MS,
            parts=self._loaded_parts,
        )

    def _keep_recovery(self, node: Node, now: float) -> None:
        """What it took beside what the life before had predicted, for people."""
        target_ms = node.progress().get("target_ms")
        if target_ms is None:
            return
        foretold = {} if self._foretold is None else self._foretold.figures
        recovery = KeptRecovery(
            at=time.time(),
            epoch=node.epoch,
            target_ms=target_ms,
            predicted_ms=foretold.get("predicted_ms"),
            achieved_ms=(now - self._registered) * 1e3 + HOPS_MS,
            load_ms=self.timings["load_ms"],
            replay_ms=self.timings.get("replay_ms", 0.0),
            records=self._loaded,
            tuples=self._replayed,
        )
        keep_recovery(self._folder, self._name, recovery)
        self.timings["recovery_achieved_ms"] = recovery.achieved_ms
        if recovery.predicted_ms is not None:
            self.timings["recovery_predicted_ms"] = recovery.predicted_ms

    def look_around(self) -> None:
        """Whether the machine is under pressure, where a promise would suffer from it."""
        if self.rates is not None:
            self.rates.pressure.look(counted_now())

    def keep_rates_at(self, now: float, node: Node) -> None:
        """Keep rates now and then: whatever was seen may be lost at any moment."""
        if now > self._rates_kept + _KEEP_RATES_SECONDS:
            self.keep_rates(node)
            self._rates_kept = now

    def keep_rates(self, node: Node) -> None:
        """For the next life."""
        if self.rates is not None and not self.replaying:
            keep_rates(self._folder, self._name, self.rates, node.progress())
