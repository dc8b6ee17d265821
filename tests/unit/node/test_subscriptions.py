"""Who reads which output of a node, and from where."""

import pytest

from rewake.log.files.lineage import Lineage, Step
from rewake.model.errors import HistoryMismatch, OutOfRange
from rewake.node.channels.subscriptions import Subscriptions
from rewake.node.commands import Answer, Disconnect, ReadLog, Send
from rewake.node.limits import NodeLimits
from rewake.node.messages import Ack, Begins, Packet, Refused, Subscribe
from rewake.recovery.approach import Kept


def packet(start: int, end: int) -> Packet:
    return Packet(start, end, end - start, payload=b"x" * 100)


def subscriptions(kept: Kept = Kept.IN_LOG, *, position: int = 0, epoch: int = 1, **limits):
    rewound: list[int] = []

    def rewind(at: int):
        rewound.append(at)
        return []

    outputs = Subscriptions(
        [("sink",)], position, epoch=epoch, kept=kept, limits=NodeLimits(**limits), rewind=rewind
    )
    return outputs, rewound


def subscribe(name: str = "sink", *, epoch: int = 1, position: int = 0, expects: int = 0):
    return Subscribe("node", 0, name, epoch, position, expects)


def sent(commands) -> list[int]:
    return [each.packet.end for each in commands if isinstance(each, Send)]


def test_an_old_epoch_of_a_consumer_is_fenced():
    """After a later attempt has subscribed, an earlier one is told that it is over."""
    outputs, _ = subscriptions()
    outputs.subscribed(1, subscribe(epoch=3))
    (answer,) = outputs.subscribed(2, subscribe(epoch=2))
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, Refused)
    assert answer.message.fenced


def test_a_later_attempt_takes_the_place_of_the_earlier_one():
    """Of a node only one attempt is served."""
    outputs, _ = subscriptions()
    outputs.subscribed(1, subscribe(epoch=1))
    commands = outputs.subscribed(2, subscribe(epoch=2))
    assert Disconnect(1) in commands
    assert sent(outputs.offer([packet(0, 1)])) == [1]


def test_clients_may_share_a_name():
    """They have no epochs, and nobody waits for them."""
    outputs, _ = subscriptions()
    outputs.subscribed(1, subscribe("client", epoch=0))
    commands = outputs.subscribed(2, subscribe("client", epoch=0))
    assert Disconnect(1) not in commands
    assert sent(outputs.offer([packet(0, 1)])) == [1, 1]


def test_a_client_cannot_pose_as_a_consumer():
    """What a node may trim is decided by nodes."""
    outputs, _ = subscriptions()
    outputs.subscribed(1, subscribe(epoch=0))
    outputs.offer([packet(0, 9)])
    outputs.acked(1, Ack(9, 9))
    assert outputs.needed() == 0


def test_a_superseded_upstream_says_so():
    """Whoever expects a later epoch must not be served by an earlier one."""
    outputs, _ = subscriptions(epoch=1)
    (answer,) = outputs.subscribed(1, subscribe(expects=2))
    assert isinstance(answer.message, Refused)
    assert not answer.message.fenced


def test_a_consumer_that_knows_more_than_the_log_is_refused():
    """The log has lost its end, or belongs to somebody else."""
    outputs, _ = subscriptions(position=5)
    (answer,) = outputs.subscribed(1, subscribe(position=6))
    assert isinstance(answer.message, Refused)


def test_the_past_comes_from_the_log():
    """What memory does not have any more is read back."""
    outputs, _ = subscriptions(position=100)
    commands = outputs.subscribed(1, subscribe(position=40))
    assert commands[0] == Answer(1, Begins(40, 1))
    assert commands[1] == ReadLog(1, 40)


def test_a_transparent_output_is_made_again_on_demand():
    """By asking upstream again."""
    outputs, rewound = subscriptions(Kept.UPSTREAM)
    outputs.subscribed(1, subscribe(position=40))
    assert rewound == [40]


def test_a_client_does_not_decide_where_a_transparent_output_begins():
    """It could name a position that no log has, and the query would be taken for broken."""
    outputs, rewound = subscriptions(Kept.UPSTREAM)
    (answer,) = outputs.subscribed(1, subscribe("client", epoch=0, position=10**15))
    assert isinstance(answer.message, Refused)
    assert rewound == []
    outputs.subscribed(2, subscribe(position=40))
    assert rewound == [40]
    assert Answer(3, Begins(40, 1)) in outputs.subscribed(
        3, subscribe("client", epoch=0, position=40)
    )


def test_an_output_that_is_made_again_says_no_shorter_log_than_before():
    """Else a consumer that is further on would take its upstream for an older copy."""
    outputs, _ = subscriptions(Kept.UPSTREAM)
    outputs.subscribed(1, subscribe())
    outputs.inherit(Lineage(7, (Step(1, 0),), end=10))
    outputs.offer([packet(0, 300)])
    outputs.restart(170)  # for another consumer, when the upstream is away
    commands = outputs.subscribed(2, subscribe(epoch=2, position=300))
    (answer,) = (each for each in commands if isinstance(each, Answer))
    assert answer.message.lineage.end == 300


def test_a_client_does_not_have_a_transparent_output_made_again():
    """All consumers would get it again, and what their log has trimmed would end the query."""
    outputs, rewound = subscriptions(Kept.UPSTREAM)
    outputs.subscribed(1, subscribe())
    outputs.offer([packet(0, 300)])
    outputs.acked(1, Ack(300, 300))
    (answer,) = outputs.subscribed(2, subscribe("client", epoch=0))
    assert isinstance(answer.message, Refused)
    assert "ask from position 300 on" in answer.message.reason
    assert rewound == [0]
    assert Answer(3, Begins(300, 1)) in outputs.subscribed(
        3, subscribe("client", epoch=0, position=300)
    )


def test_a_transparent_output_goes_back_to_where_the_slowest_is():
    """What one consumer asks for again must not cost another what it has not been sent yet."""
    rewound: list[int] = []

    def rewind(at: int):
        rewound.append(at)
        outputs.restart(at)
        return []

    limits = NodeLimits(window_bytes=1)
    outputs = Subscriptions(
        [("fast",), ("slow",)], 0, epoch=1, kept=Kept.UPSTREAM, limits=limits, rewind=rewind
    )
    outputs.subscribed(1, Subscribe("node", 0, "fast", 1, 0, 0))
    outputs.subscribed(2, Subscribe("node", 1, "slow", 1, 0, 0))
    for start in range(0, 60, 10):
        outputs.offer([packet(start, start + 10), packet(start, start + 10)])
        outputs.acked(1, Ack(start + 10, start + 10))
    outputs.acked(2, Ack(10, 10))
    rewound.clear()
    outputs.subscribed(3, Subscribe("node", 0, "fast", 2, 50, 0))
    assert rewound == [20], "the slow one was sent up to there"


def test_what_amnesia_lost_is_a_gap():
    """The answer says where the stream goes on."""
    outputs, _ = subscriptions(Kept.NOWHERE, position=1000)
    commands = outputs.subscribed(1, subscribe(position=40))
    assert commands[0] == Answer(1, Begins(1000, 1))


def test_a_slow_consumer_holds_the_node_back():
    """Back-pressure: a node does not run further ahead than allowed."""
    outputs, _ = subscriptions(lag_tuples=10, window_bytes=1)
    outputs.subscribed(1, subscribe())
    for start in range(0, 30, 5):
        outputs.offer([packet(start, start + 5)])
    assert not outputs.has_room
    for position in range(5, 26, 5):
        outputs.acked(1, Ack(position, position))
    assert outputs.has_room


def test_a_client_that_is_owed_what_was_trimmed_is_turned_away():
    """Its mistake is its own; nothing is kept of it."""
    outputs, _ = subscriptions(position=5)
    commands = outputs.subscribed(1, subscribe("client", epoch=0))
    assert commands[-1] == ReadLog(1, 0, 0)
    gone = OutOfRange("position 0 is not in the log")
    assert outputs.trimmed(1, gone) == [Answer(1, Refused(str(gone)))]
    assert sent(outputs.offer([packet(5, 6)])) == []
    outputs.check_invariants()


def test_a_consumer_that_is_owed_what_was_trimmed_is_not_of_this_history():
    """It had said that it does not need it again."""
    outputs, _ = subscriptions(position=5)
    outputs.subscribed(1, subscribe("sink", epoch=2))
    with pytest.raises(HistoryMismatch, match="the consumer 'sink' asks for what it once said"):
        outputs.trimmed(1, OutOfRange("position 0 is not in the log"))


def test_a_client_that_asks_for_what_is_not_there_yet_is_told_both_that_it_may_be():
    """It may have asked too early, or have read a log that was longer: it alone knows."""
    outputs, _ = subscriptions(position=5)
    (answer,) = outputs.subscribed(1, subscribe(epoch=0, position=9))
    assert isinstance(answer.message, Refused)
    assert not answer.message.misfit
    assert 'its log ends at 5; ask again when it has come as far, or begin at "latest"' in (
        answer.message.reason
    )
    assert "older than it was" in answer.message.reason
