"""Clients of streams that keep no history, in the simulator."""

from rewake.node.limits import NodeLimits
from rewake.sim.check import check_client
from rewake.sim.cluster import Cluster, Kinds
from rewake.sim.world import World
from rewake_lab.nexmark.drill import NexmarkDrill

# Little memory: what a client asks for is soon in the log only.
LIMITS = NodeLimits(queue_bytes=1, window_bytes=500, turns_per_trim=1)


def test_a_client_that_asks_for_what_was_trimmed_is_turned_away() -> None:
    """The run goes on to its end; whoever is served misses nothing between its tuples."""
    world = World(0)
    drill = NexmarkDrill("q4", approach="cec", events=3_000, events_per_second=100, cut=50)
    cluster = Cluster(world, drill.build().plan(), kinds=Kinds(), limits=LIMITS)
    cluster.start()
    for late_ms in range(20, 600, 10):
        world.schedule(late_ms, cluster.join)
    world.run(lambda: cluster.over, until_ms=60_000.0)
    for client in cluster.clients:
        check_client(cluster.archive, client)
    kept = {each.name for each in cluster.plan.nodes if each.keeps_history}
    turned_away = {each.node for each in cluster.clients if each.turned_away}
    assert turned_away
    assert not turned_away & kept
    assert {each.node for each in cluster.clients} >= kept
