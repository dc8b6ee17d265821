"""Markers: what protocols say between tuples, and inputs that they hold."""

import pyarrow as pa
import pytest

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan
from rewake.log.frame import Frame
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.input_merge import InputMerge
from rewake.node.channels.packets import packet_of
from rewake.node.commands import Send
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Packet, Subscribe
from rewake.node.node import Node
from rewake.operators.fragment import FragmentProgram
from rewake.recovery.amnesia import Amnesia, Forgetting
from rewake.recovery.approach import Approach, Kept
from rewake.recovery.driven import MAX_MARKER_BYTES, GoOn, Hold, Marker
from rewake.recovery.eventual.approach import ContinuousEventual
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly

SCHEMA = pa.schema([("value", pa.int64())])


def event(position: int, rows: int) -> StreamEvent:
    values = list(range(position, position + rows))
    return StreamEvent(position, pa.RecordBatch.from_pydict({"value": values}, SCHEMA))


def marker(position: int, words: bytes) -> Packet:
    return Packet(position, position, marker=words)


# --- in the merge --------------------------------------------------------------------------------


def test_a_marker_comes_behind_what_was_before_it_and_before_what_is_behind() -> None:
    """It is no turn: no position passes, and no determinant is left."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(0, packet_of(event(0, 2)))
    merge.offer(0, marker(2, b"one"))
    merge.offer(0, packet_of(event(2, 1)))
    taken = [merge.take() for _ in range(3)]
    assert [each.marker for each in taken] == [b"", b"one", b""]
    assert [each.here.end for each in taken] == [2, 2, 3]
    assert merge.unwritten == 2
    merge.check_invariants()


def test_nothing_is_taken_of_a_held_input_until_it_goes_on() -> None:
    """Not its tuples, not its markers, not its end; the others go on."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.hold(0)
    merge.offer(0, marker(0, b"one"))
    merge.offer(0, packet_of(event(0, 2)))
    merge.end(0)
    merge.offer(1, packet_of(event(0, 3)))
    assert merge.take().channel == 1
    assert merge.take() is None
    assert not merge.ended
    merge.go_on(0)
    assert merge.take().marker == b"one"
    assert [merge.take().last for _ in range(2)] == [False, True]


def test_a_recorded_order_is_followed_whatever_is_held() -> None:
    """Who is waited for may come later in it; and markers are of another time."""
    merge = InputMerge([SCHEMA, SCHEMA])
    merge.offer(1, packet_of(event(0, 2)))
    merge.take()
    section = merge.section()
    again = InputMerge([SCHEMA, SCHEMA])

    again.recover([Frame(1, 0, 0, 1, 0, 0, 0, 0, 0, 0, (section,), "segment", 0)], 0)
    again.hold(1)
    again.offer(0, marker(0, b"one"))
    again.offer(1, marker(0, b"one"))
    again.offer(1, packet_of(event(0, 2)))
    assert again.take().there.end == 2
    again.offer(1, marker(2, b"two"))
    assert again.take() is None
    again.go_on(1)
    assert again.take().marker == b"two"


def test_a_channel_that_goes_elsewhere_is_not_held_and_has_no_markers() -> None:
    """They were said by a link that is gone."""
    merge = InputMerge([SCHEMA])
    merge.hold(0)
    merge.offer(0, marker(0, b"one"))
    merge.go_to(0, 0)
    merge.offer(0, packet_of(event(0, 1)))
    assert not merge.take().marker
    merge.check_invariants()


# --- through a node ------------------------------------------------------------------------------


class _Passing(ContinuousEventualCheckpointing):
    """Passes on what it hears, and holds an input that says so."""

    def marked(self, channel, words):
        if words == b"hold":
            return [Hold(channel)]
        return [Marker(words)]

    def woke(self, now_ms):  # noqa: ARG002
        return [GoOn(0)]


class _Logged(ContinuousEventual):
    def build(self, operator, emit, frames):
        return _Passing.recover(operator, OpenOnly(), frames, emit)


class _Forgets(Forgetting):
    def marked(self, channel, words):  # noqa: ARG002
        return [Marker(words)]


class _Unlogged(Amnesia):
    def build(self, operator, emit, frames):  # noqa: ARG002
        return _Forgets(operator, emit)


def node(kept: Kept, approach: Approach, limits: NodeLimits | None = None) -> Node:
    plan = NodePlan(
        "up", "up", 0, 1, (InputPlan("source", SCHEMA),), (OutputPlan("up", SCHEMA, ("down",)),),
        FragmentProgram(), approach, kept=kept, kept_because="of the test",
    )  # fmt: skip
    found = Node(plan, 1, limits=limits)
    found.start()
    found.subscribed(1, Subscribe("up", 0, "down", 1, 0))
    return found


def sent(commands) -> list[Packet]:
    return [each.packet for each in commands if isinstance(each, Send)]


def taken(up: Node, *items) -> list[Packet]:
    for item in items:
        up.arrived(0, item)
    return [packet for _ in items for packet in sent(up.work(0.0))]


def test_what_waits_for_the_log_is_not_overtaken_by_a_marker() -> None:
    """It leaves behind the output of the turns before it, when that does."""
    up = node(Kept.IN_LOG, _Logged())
    assert taken(up, event(0, 2), marker(2, b"one"), event(2, 1)) == []
    first = sent(up.durable(1))
    assert [(each.end, each.marker) for each in first] == [(2, b""), (2, b"one")]
    assert [each.end for each in sent(up.durable(2))] == [3]
    assert [each.marker for each in taken(up, marker(3, b"two"))] == [b"two"]


@pytest.mark.parametrize(
    ("kept", "approach"), [(Kept.UPSTREAM, ContinuousEventual()), (Kept.NOWHERE, _Unlogged())]
)
def test_nodes_without_a_log_pass_markers_on_at_once(kept: Kept, approach: Approach) -> None:
    """Behind what they have passed on before."""
    up = node(kept, approach)
    first = 1 << 40 if kept is Kept.NOWHERE else 0
    if kept is Kept.NOWHERE:
        up.acked(1, Ack(0, 0))
    packets = taken(up, event(0, 2), marker(2, b"one"))
    assert [(each.end - first, each.marker) for each in packets][-1] == (2, b"one")


def test_a_node_takes_nothing_of_an_input_that_its_protocol_holds() -> None:
    """Until the protocol says so."""
    up = node(Kept.IN_LOG, _Logged())
    taken(up, marker(0, b"hold"), event(0, 2))
    assert up.tuples_in == 0
    up.woke(0.0)
    up.work(0.0)
    assert up.tuples_in == 2


def test_markers_take_no_room_and_wait_for_no_answer() -> None:
    """However many are said while nothing else comes: tuples behind them are sent."""
    up = node(Kept.IN_LOG, _Logged(), NodeLimits(window_bytes=1000, queue_bytes=1000))
    said = taken(up, *(marker(0, b"%d" % number) for number in range(1000)))
    assert [each.marker for each in said] == [b"%d" % number for number in range(1000)]
    assert taken(up, event(0, 2)) == []
    assert [each.end for each in sent(up.durable(1))] == [2]


def test_clients_hear_no_markers() -> None:
    """They are between nodes."""
    up = node(Kept.IN_LOG, _Logged())
    up.subscribed(2, Subscribe("up", 0, "client", 0, 0))
    up.arrived(0, marker(0, b"one"))
    said = [each.subscriber for each in up.work(0.0) if isinstance(each, Send)]
    assert said == [1]


class _Listening(ContinuousEventualCheckpointing):
    positions: tuple[int, ...] = ()

    def released(self, position):
        self.positions += (position,)
        return []


class _Heard(ContinuousEventual):
    def build(self, operator, emit, frames):
        return _Listening.recover(operator, OpenOnly(), frames, emit)


def test_an_approach_hears_what_nobody_will_ask_for_again() -> None:
    """Once each, and only upwards."""
    up = node(Kept.IN_LOG, _Heard())
    taken(up, event(0, 2), event(2, 2))
    up.durable(2)
    for needed in (0, 2, 2, 1, 4):
        up.acked(1, Ack(needed, needed))
    assert up.recovery.positions == (2, 4)


@pytest.mark.parametrize(
    ("kept", "approach"), [(Kept.UPSTREAM, ContinuousEventual()), (Kept.NOWHERE, _Unlogged())]
)
def test_a_node_without_a_log_outlasts_any_number_of_watermarks(kept, approach) -> None:
    """Time passes for hours, and no tuple: the next one is taken and sent."""
    up = node(kept, approach, NodeLimits(queue_bytes=1000))
    up.acked(1, Ack(0, 0))
    for time in range(200):
        up.arrived(0, Packet(0, 0, 0, time))
        assert len(sent(up.work(0.0))) == 1
        up.acked(1, Ack(0, 0))
    assert [each.rows for each in taken(up, event(0, 2))] == [2]


@pytest.mark.parametrize("words", [b"", b"x" * (MAX_MARKER_BYTES + 1)])
def test_a_marker_has_a_size(words: bytes) -> None:
    """It stands between packets; who has much to say has other ways."""
    with pytest.raises(UsageError, match="a marker of"):
        Marker(words)
