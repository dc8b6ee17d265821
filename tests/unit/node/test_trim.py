"""What a node lets go of its log."""

import pyarrow as pa

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan
from rewake.model.stream_event import StreamEvent
from rewake.node.commands import Trim
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Subscribe
from rewake.node.node import Node
from rewake.operators.fragment import FragmentProgram
from rewake.recovery.approach import Kept, approach_named

SCHEMA = pa.schema([("value", pa.int64())])


def _event(position: int, rows: int, watermark: int | None = None) -> StreamEvent:
    values = list(range(position, position + rows))
    return StreamEvent(position, pa.RecordBatch.from_pydict({"value": values}, SCHEMA), watermark)


def _node() -> Node:
    plan = NodePlan(
        "up",
        "up",
        0,
        1,
        (InputPlan("source", SCHEMA),),
        (OutputPlan("up", SCHEMA, ("down",)),),
        FragmentProgram(),
        approach_named("cec"),
        kept=Kept.IN_LOG,
        kept_because="the stream is kept",
    )
    return Node(plan, 1, limits=NodeLimits(turns_per_trim=1))


def _trims(node: Node) -> list[int]:
    return [each.before for each in node.tick(0.0) if isinstance(each, Trim)]


def test_a_watermark_that_stands_alone_is_kept_as_long_as_its_position_is_needed() -> None:
    """A consumer that needs input from a position on needs the watermark that stands there."""
    node = _node()
    node.subscribed(1, Subscribe("up", 0, "down", 1, 0))
    for number, event in enumerate((_event(0, 2), _event(2, 0, watermark=7), _event(2, 3))):
        node.arrived(0, event)
        node.work(0.0)
        node.durable(number + 1)
    node.acked(1, Ack(5, 2))
    assert max(_trims(node), default=0) <= 1
    node.acked(1, Ack(5, 3))
    assert max(_trims(node), default=0) == 2
