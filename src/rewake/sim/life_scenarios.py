"""Small random queries with promises of how long a crash may cost, or with steps that forget."""

from __future__ import annotations

from random import Random

from rewake.operators.windows.specs import count_window
from rewake.recovery.amnesia import Amnesia
from rewake.recovery.approach import Approach
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.policies.recover_within import RecoverWithin
from rewake.sim.connectors import ListSink
from rewake.sim.scenarios import Builder, Scenario

__all__ = ["forgetful_scenario", "promised_scenario"]


class PromisedBuilder(Builder):
    """Grows queries whose steps mostly promise a time, which is short."""

    def _approach(self) -> Approach:
        random = self._random
        if random.random() < 0.2:
            return super()._approach()
        time = random.choice(("3ms", "10ms", "40ms"))
        return ContinuousEventual(RecoverWithin(time, random.choice(("5%", "50%", "100%"))))


class ForgetfulBuilder(Builder):
    """Grows queries with an aggregate under amnesia, and one beside it that keeps everything."""

    def build(self) -> Scenario:
        """One scenario."""
        random = self._random
        self._timed = False
        streams = [self._source(f"source{number}") for number in range(random.choice((1, 2)))]
        streams = [self._stateless(each, number) for number, each in enumerate(streams)]
        stream = streams[0]
        if len(streams) > 1:
            stream = stream.union(*streams[1:], name="union", approach=self._approach())
        if random.random() < 0.5:
            stream.to_stream("stream-kept")
        size = random.randrange(1, 6)
        forgetful = stream.aggregate(
            by="k",
            window=count_window(size, random.choice((size, size, random.randrange(1, 6)))),
            sum="v",
            count=True,
            first="t",
            name="forgetful",
            shards=random.choice((1, 1, 2)),
            approach=Amnesia(),
        )
        sink = self._scenario.sinks["remembered"] = ListSink(gaps=True)
        forgetful.to(sink, name="remembered")
        end = self._aggregate(stream, "first")
        end.to_stream("stream0")
        self._maybe_sink(end, 0)
        self._scenario.plan = self._kept(self._query.plan())
        return self._scenario


def promised_scenario(random: Random, *, largest: int = 220) -> Scenario:
    """A scenario in which times are promised, with at most so many tuples per source, roughly."""
    return PromisedBuilder(random, largest=largest).build()


def forgetful_scenario(random: Random, *, largest: int = 220) -> Scenario:
    """A scenario with a step that forgets, with at most so many tuples per source, roughly."""
    return ForgetfulBuilder(random, largest=largest).build()
