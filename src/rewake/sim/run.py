"""One seed from beginning to end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from rewake.node.limits import NodeLimits
from rewake.sim.check import check_client, check_producer
from rewake.sim.cluster import Cluster, Kinds
from rewake.sim.faults import FaultSchedule
from rewake.sim.life_scenarios import forgetful_scenario, promised_scenario
from rewake.sim.loop_scenarios import loop_scenario
from rewake.sim.operator_scenarios import operator_scenario
from rewake.sim.scenarios import Scenario, producers_scenario, random_scenario
from rewake.sim.world import World

# Virtual time that a run may take after its last fault.
_PATIENCE_MS = 60_000.0

Judge = Callable[[Scenario, Cluster], dict[str, int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.  `failure` is empty when everything held."""

    seed: int
    trace_hash: str
    virtual_ms: float
    actions: int
    checked: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    failure: str = ""
    story: tuple[str, ...] = ()

    def report(self) -> str:
        """For people: what failed, the story, and how to see it again."""
        lines = "\n".join(self.story)
        return (
            f"seed {self.seed} failed: {self.failure}\n{lines}\n"
            f"replay it with: rewake simulate --seed {self.seed} --story"
        )


def run_seed(
    seed: int,
    judge: Judge,
    *,
    kinds: Kinds | None = None,
    listener: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed; `judge` compares what is left in the end with what must be there."""
    world = World(seed)
    world.listener = listener
    checked: dict[str, int] = {}
    failure = ""
    faults: FaultSchedule | None = None
    try:
        scenario = _grower(seed)(world.random)
        plan = replace(scenario.plan, servers=_servers(world, len(scenario.plan.nodes)))
        cluster = Cluster(world, plan, kinds=kinds or Kinds(), limits=_limits(world))
        cluster.pace_ms = world.random.choice(scenario.paces_ms)
        faults = FaultSchedule(cluster, world.between(100, 2500))
        cluster.start(scenario.producers)
        faults.start()
        world.run(lambda: cluster.over, until_ms=faults.stops_ms + _PATIENCE_MS)
        for name in cluster.archive.frames:
            cluster.archive.complete(name, cluster.disks[name])
        for client in cluster.clients:
            check_client(cluster.archive, client)
        for producer in cluster.producers:
            check_producer(cluster.archive, producer)
        checked = judge(scenario, cluster)
    except Exception as error:  # whatever it is, it is this seed's outcome
        where = traceback.format_exc(limit=-4)
        failure = f"{type(error).__name__}: {error}\n{where}"
    return Outcome(
        seed,
        world.trace_hash,
        world.now_ms,
        world.actions,
        checked,
        faults.injected if faults is not None else {},
        failure,
        tuple(world.story),
    )


def _grower(seed: int) -> Callable[[Random], Scenario]:
    if seed % 8 == 5:
        return producers_scenario
    if seed % 8 == 6:
        return loop_scenario
    if seed % 8 == 1:
        return promised_scenario if seed % 16 == 1 else forgetful_scenario
    return operator_scenario if seed % 4 == 3 else random_scenario


def _servers(world: World, nodes: int) -> int | None:
    """Mostly each node has a server of its own."""
    return None if world.chance(0.6) else world.random.randrange(1, nodes + 1)


def _limits(world: World) -> NodeLimits:
    """Sometimes so small that everything has to wait for everything."""
    if world.chance(0.5):
        return NodeLimits(turns_per_trim=world.random.choice((1, 4, 16)))
    return NodeLimits(
        window_bytes=world.random.choice((500, 4000)),
        queue_bytes=world.random.choice((500, 4000)),
        pending_bytes=world.random.choice((300, 4000)),
        input_bytes=world.random.choice((300, 4000)),
        lag_tuples=world.random.choice((20, 300)),
        turns_per_trim=world.random.choice((1, 4)),
    )
