"""Bookmarks: durable at the coordinator before it says so; and what a node makes of them."""

import pyarrow as pa
import pytest

from rewake.graph.plan.plan import InputPlan, NodePlan, OutputPlan, Plan
from rewake.log.files.lineage import Lineage, Step
from rewake.model.errors import DamagedData, HistoryMismatch, UsageError
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.node.commands import (
    Acknowledge,
    Announce,
    Answer,
    Connect,
    Persist,
    Remember,
    Send,
    Tell,
)
from rewake.node.coordinator.coordinator import Coordinator
from rewake.node.coordinator.state import decode_state, encode_state
from rewake.node.limits import NodeLimits
from rewake.node.messages import (
    Ack,
    Begins,
    KeepBookmark,
    Packet,
    Refused,
    Register,
    Subscribe,
    Welcome,
)
from rewake.node.node import Node
from rewake.operators.aggregate.functions import Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.fragment import FragmentProgram
from rewake.operators.windows.specs import time_window
from rewake.recovery.approach import Kept
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import LogSoFar
from rewake.recovery.upstream_backup import UpstreamBackup

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
PROGRAM = FragmentProgram(
    stateful=AggregateSpec(["k"], time_window(10), [Sum("v", "sum")], time="t")
)
NODE = NodePlan(
    "sums", "sums", 0, 1,
    (InputPlan("items", SCHEMA, "items"),),
    (OutputPlan("sums", PROGRAM.output_schema(SCHEMA), ("down",)),),
    PROGRAM, UpstreamBackup(), Kept.IN_QUEUE, "",
)  # fmt: skip
PLAN = Plan("query", (NODE,), {}, "f")
BOOKMARK = Bookmark(5, 20, 2, 0, 4, 10, 9)


# --- at the coordinator --------------------------------------------------------------------------


def welcomed(coordinator, connection=1):
    (persist,) = coordinator.registered(connection, Register("sums", ("127.0.0.1", 1)), 0.0)[-1:]
    told = coordinator.persisted(persist.version)
    return next(each.message for each in told if isinstance(each.message, Welcome))


def persisting(commands):
    return [each for each in commands if isinstance(each, Persist)]


def test_a_bookmark_is_durable_before_the_node_hears_of_it():
    """What it gives up then is needed by no bookmark that could come back."""
    coordinator = Coordinator(PLAN)
    assert welcomed(coordinator).bookmark is None
    message = KeepBookmark("sums", 1, BOOKMARK)
    assert coordinator.keep_bookmark(1, message) == []
    (persist,) = persisting(coordinator.tick(1.0))
    assert persist.state["bookmarks"] == {"sums": list(BOOKMARK)}
    assert persisting(coordinator.tick(2.0)) == [], "it is on its way to the disk"
    assert coordinator.persisted(persist.version - 1) == []
    assert coordinator.persisted(persist.version) == [Tell(1, message)]
    assert coordinator.persisted(persist.version) == []


def test_a_bookmark_that_comes_while_another_state_is_written_waits_for_the_next():
    """That one does not hold it."""
    coordinator = Coordinator(PLAN)
    welcomed(coordinator)
    coordinator.keep_bookmark(1, KeepBookmark("sums", 1, BOOKMARK))
    (first,) = persisting(coordinator.tick(1.0))
    later = KeepBookmark("sums", 1, BOOKMARK._replace(position=9))
    coordinator.keep_bookmark(1, later)
    assert coordinator.persisted(first.version) == []
    (second,) = persisting(coordinator.tick(2.0))
    assert coordinator.persisted(second.version) == [Tell(1, later)]


def test_the_next_attempt_is_welcomed_with_the_bookmark():
    """Also by a driver that has started again."""
    coordinator = Coordinator(PLAN)
    welcomed(coordinator)
    coordinator.keep_bookmark(1, KeepBookmark("sums", 1, BOOKMARK))
    coordinator.disconnected(1)
    assert welcomed(coordinator, 2).bookmark == BOOKMARK
    state = decode_state(encode_state(coordinator.state()))
    assert welcomed(Coordinator(PLAN, state), 1).bookmark == BOOKMARK


def test_the_bookmark_of_an_earlier_attempt_counts_for_nothing():
    """Nor does that of one that has no epoch yet."""
    coordinator = Coordinator(PLAN)
    welcomed(coordinator)
    coordinator.registered(2, Register("sums", ("127.0.0.1", 1)), 0.0)
    for connection, epoch in ((1, 1), (2, 1), (2, 2), (3, 2)):
        coordinator.keep_bookmark(connection, KeepBookmark("sums", epoch, BOOKMARK))
    assert "bookmarks" not in coordinator.state()


@pytest.mark.parametrize(
    "changed",
    [
        {"bookmarks": []},
        {"bookmarks": {"sums": [1, 2, 3]}},
        {"bookmarks": {"sums": list(BOOKMARK._replace(start=6))}},
        {"bookmarks": {"another": list(BOOKMARK)}},
        {"order": ["another"]},
        {"order": "sums"},
    ],
)
def test_a_state_with_bookmarks_that_cannot_be_is_refused(changed):
    """As with epochs that no coordinator gives."""
    coordinator = Coordinator(PLAN)
    welcomed(coordinator)
    coordinator.keep_bookmark(1, KeepBookmark("sums", 1, BOOKMARK))
    with pytest.raises(DamagedData, match="impossible numbers"):
        decode_state(encode_state(coordinator.state() | changed))


def test_a_state_without_bookmarks_is_as_it_was():
    """Folders of earlier versions are read, and those of other approaches do not change."""
    assert not {"bookmarks", "order"} & Coordinator(PLAN).state().keys()


# --- at the node ---------------------------------------------------------------------------------


def event(start, *times, watermark=None):
    columns = {"k": [1] * len(times), "t": list(times), "v": [1] * len(times)}
    return StreamEvent(start, pa.RecordBatch.from_pydict(columns, schema=SCHEMA), watermark)


def fed(node, *events):
    commands = []
    for each in events:
        node.arrived(0, each)
        commands += node.work(0.0)
        node.check_invariants()
    return commands


def packets(commands):
    return [each.packet for each in commands if isinstance(each, Send)]


def subscribed(node, position=0, *, epoch=1, link=7):
    name = "down" if epoch else "a client"
    return node.subscribed(link, Subscribe("sums", 0, name, epoch, position))


def test_a_watermark_alone_takes_a_position():
    """So a consumer that is at a position has got all that was said before it, of time too."""
    node = Node(NODE, 1)
    subscribed(node)
    sent = packets(
        fed(node, event(0, 1, watermark=2), event(1, watermark=3), event(1, watermark=3))
    )
    assert sent == [Packet(0, 1, 0, 2), Packet(1, 2, 0, 3)]
    (results,) = packets(fed(node, event(1, 12, watermark=12)))
    assert (results.start, results.end, results.rows) == (2, 3, 1)


def test_input_is_given_up_when_the_bookmark_is_durable():
    """Not when it is asked for."""
    node = Node(NODE, 1)
    subscribed(node)
    fed(node, event(0, 1, 2, watermark=12))
    node.acked(7, Ack(1, 1))
    (asked,) = [each.message for each in node.woke(0.0) if isinstance(each, Announce)]
    assert (asked.node, asked.epoch, asked.bookmark.start) == ("sums", 1, 2)
    assert Acknowledge(0, Ack(2, 0)) in node.tick(0.0)
    assert Acknowledge(0, Ack(2, 2)) in node.bookmark_kept(asked.bookmark)
    assert Acknowledge(0, Ack(2, 2)) in node.tick(0.0)


def test_who_goes_back_asks_from_the_start_and_numbers_output_from_the_bookmark():
    """A consumer that is ahead is sent nothing until the node has come as far."""
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(2, 12, 1, 0, 2, 12, 12)))
    assert Connect(0, 2) in node.start()
    (answer,) = subscribed(node, 2)
    assert answer == Answer(7, Begins(2, 2))
    assert packets(fed(node, event(2, 13, watermark=13))) == []
    (packet,) = packets(fed(node, event(3, 24, watermark=24)))
    assert packet.start == 2


def test_a_watermark_that_was_heard_before_the_bookmark_is_not_told_again():
    """It would take a position that something else has."""
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(2, 12, 1, 0, 2, 12, 12)))
    node.start()
    subscribed(node, 1)
    assert packets(fed(node, event(2, watermark=12), event(2, 13, watermark=11))) == []


def test_who_asks_for_output_before_the_bookmark_is_of_another_history():
    """Every consumer had said that it needs none of it."""
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(5, 20, 2, 0, 4, 10, 9)))
    node.start()
    (answer,) = subscribed(node, 1)
    assert isinstance(answer.message, Refused)
    assert answer.message.misfit


def test_a_client_that_is_ahead_waits_and_gets_nothing_twice():
    """It holds nothing back; but what is made again it has."""
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(2, 12, 1, 0, 2, 12, 12)))
    node.start()
    (answer,) = subscribed(node, 2, epoch=0)
    assert answer.message.position == 2
    assert packets(fed(node, event(2, 13, watermark=13))) == []
    assert packets(fed(node, event(3, 24, watermark=24)))[0].start == 2


def test_a_node_whose_consumer_is_ahead_goes_on_though_memory_is_full():
    """What is made again is what the consumer waits for: to wait for it would be for ever."""
    limits = NodeLimits(queue_bytes=1)
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(2, 12, 1, 0, 2, 12, 12)), limits=limits)
    node.start()
    subscribed(node, 3)
    fed(node, event(2, 13, watermark=13), event(3, 24, watermark=24))
    assert node.merge.position == 4


def test_output_that_is_needed_for_too_long_ends_the_query_in_words():
    """Trap 3: the queue waits for its consumer, which waits for input; it says who needs what."""
    node = Node(NODE, 1, limits=NodeLimits(queue_bytes=1, retained_bytes=300))
    subscribed(node)
    with pytest.raises(UsageError, match="wait in memory, because 'down' may ask for it again"):
        fed(node, *(event(at, 10 * at, watermark=10 * at) for at in range(20)))


def test_a_log_that_is_older_than_the_bookmark_is_refused():
    """Its input up to the bookmark must come again as it was; so the node remembers whose it is."""
    bookmark = Bookmark(5, 20, 2, 0, 4, 10, 9)
    before = Lineage(9, (Step(1, 0, 77),), 8)
    first = Node(NODE, 1)
    first.start()
    (remember,) = first.began(0, 0, before)
    assert isinstance(remember, Remember)
    same = Node(NODE, 2, LogSoFar(bookmark=bookmark), origins=remember.origins)
    same.start()
    same.began(0, 4, before)
    for other in (
        Lineage(9, (Step(1, 0, 77),), 4),
        Lineage(9, (Step(1, 0, 77), Step(2, 3, 5)), 8),
        Lineage(8, (Step(1, 0, 77),), 8),
    ):
        node = Node(NODE, 2, LogSoFar(bookmark=bookmark), origins=remember.origins)
        node.start()
        with pytest.raises(HistoryMismatch, match="'sums' has consumed 'items' up to position 5"):
            node.began(0, 4, other)


def test_the_clocks_of_the_start_are_taken_over():
    """Of the input, which tells nothing twice, and of the operator, which knows what is late."""
    node = Node(NODE, 2, LogSoFar(bookmark=Bookmark(5, 20, 2, 3, 4, NO_TIME, 9)))
    assert (node.merge.position, node.recovering) == (4, True)
    assert (node.recovery.operator.clock, node.recovery.operator.late_tuples) == (9, 3)
    assert node.replay_tuples == 1
