"""NEXMark's queries in the simulator, left alone and with everything that can go wrong."""

import pyarrow as pa
import pytest

from rewake.drill.drill import Drill
from rewake.drill.queries import built_in
from rewake.model.errors import UsageError
from rewake.node.channels.packets import event_of, packet_in
from rewake.node.limits import NodeLimits
from rewake.sim.check import check_client
from rewake.sim.cluster import Cluster, Kinds
from rewake.sim.faults import FaultSchedule
from rewake.sim.world import World
from rewake_lab.nexmark.answers import QUESTIONS
from rewake_lab.nexmark.drill import NexmarkDrill
from rewake_lab.nexmark.queries import QUERIES

# One whose faults come early and often.
FAULTY_SEED = 0
# 100 events per second: 3,000 events are 30 s, and auctions are open for 17 s on average.
SMALL = {"events": 3_000, "events_per_second": 100, "cut": 150}


def results(drill: Drill, seed: int, *, faults_ms: float = 0.0) -> tuple[list[pa.Table], int]:
    """What a simulated run leaves in the log of each shard; and how much was broken."""
    world = World(seed)
    plan = drill.build().plan()
    cluster = Cluster(world, plan, kinds=Kinds(), limits=NodeLimits(turns_per_trim=2))
    faults = FaultSchedule(cluster, faults_ms)
    cluster.start()
    if faults_ms:
        faults.start()
    world.run(lambda: cluster.over, until_ms=faults_ms + 60_000.0)
    tables = []
    for node, output in plan.streams["results"]:
        cluster.archive.complete(node, cluster.disks[node])
        schema = plan.node(node).outputs[output].schema
        packets = [packet_in(frame, output) for frame in cluster.archive.frames[node]]
        batches = [event_of(each, schema).batch for each in packets if each is not None]
        tables.append(pa.Table.from_batches(batches, schema))
    for client in cluster.clients:
        check_client(cluster.archive, client)
    return tables, sum(faults.injected.values())


@pytest.mark.parametrize("out_of_order", [1, 64], ids=["ordered", "disordered"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_what_duckdb_answers(query: str, out_of_order: int) -> None:
    """Every result once, in its order."""
    drill = NexmarkDrill(query, out_of_order=out_of_order, **SMALL)
    tables, _ = results(drill, 1)
    verdict = drill.check(tables)
    assert verdict.expected > 0
    assert verdict.right, verdict


@pytest.mark.parametrize("approach", ["cec", "instant"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_the_same_whatever_fails(query: str, approach: str) -> None:
    """Nodes, machines, disks, connections and the driver fail, again and again."""
    drill = NexmarkDrill(query, approach=approach, **{**SMALL, "cut": 50})
    tables, injected = results(drill, FAULTY_SEED, faults_ms=2000.0)
    assert injected > 0
    verdict = drill.check(tables)
    assert verdict.right, (verdict, injected)


# --- by name -------------------------------------------------------------------------------------


def test_every_query_that_has_an_answer_can_be_drilled_by_name() -> None:
    """Three lists of queries are one."""
    assert list(QUERIES) == list(QUESTIONS)
    for query in QUERIES:
        drill = built_in(f"nexmark:{query}", tuples=5_000, seed=3)
        assert drill.name == f"nexmark-{query}"
        steps = drill.build().graph().steps
        reads = tuple(step.name for step in steps if step.source is not None)
        assert QUERIES[query].reads == reads
        assert 0 < drill.tuples <= 5_000
        assert len(drill.streams()) == 2


def test_a_query_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    """By the drill and by its name."""
    with pytest.raises(UsageError, match=r"no built-in query 'nexmark:q9'; there are .*nexmark:q8"):
        built_in("nexmark:q9")
    with pytest.raises(UsageError, match=r"no NEXMark query 'q9'; there are q1, .*q12"):
        NexmarkDrill("q9")


def test_a_pace_is_that_of_all_events() -> None:
    """Of 50 events, one is a person and three are auctions."""
    drill = built_in("nexmark:q3", tuples=5_000, rate=1_000.0)
    assert (drill.tuples, drill.rate) == (400, 80.0)
    assert built_in("nexmark:q3").rate is None


def test_the_number_of_keys_cannot_be_chosen() -> None:
    """The generator decides it."""
    with pytest.raises(UsageError, match="leave out --keys"):
        built_in("nexmark:q5", items=10)


# --- verdicts ------------------------------------------------------------------------------------


def test_what_is_missing_twice_wrong_or_out_of_order_is_found() -> None:
    """A verdict that is always good proves nothing."""
    drill = NexmarkDrill("q6", shards=1, **SMALL)
    (table,), _ = results(drill, 1)
    rows = table.num_rows
    assert drill.check([table]).right
    assert drill.check([table.slice(1)]).lost == 1
    assert drill.check([pa.concat_tables([table, table.slice(rows - 1)])]).duplicated == 1
    backwards = table.take(list(range(rows))[::-1])
    assert drill.check([backwards]).reordered > 0
    prices = pa.array(table.column("avg_price").to_numpy() + 1)
    other = drill.check([table.set_column(3, "avg_price", prices)])
    assert (other.lost, other.wrong) == (rows, rows)
