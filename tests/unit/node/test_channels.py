"""The links of a node: dialled, lost, moved, refused and served, whatever host carries them."""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.model.errors import Fenced, HistoryMismatch
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.channels import Channels
from rewake.node.channels.packets import packet_of
from rewake.node.commands import Answer, Connect, Dial, Disconnect, HangUp, Rest, Tell
from rewake.node.messages import Ack, Begins, Packet, Peek, Peer, Produce, Refused, Subscribe
from rewake.node.node import Node
from rewake.node.whereabouts import Whereabouts
from rewake.operators.windows.specs import count_window

SCHEMA = pa.schema([("k", pa.int64())])
HERE, THERE = ("here", 1), ("there", 2)


def packet(first: int, last: int) -> Packet:
    """Tuples at these positions."""
    return packet_of(StreamEvent(first, pa.record_batch({"k": list(range(first, last))}, SCHEMA)))


class Host:
    """Performs what concerns links, and remembers what was said."""

    def __init__(self, name: str = "counts", peers: dict[str, Peer] | None = None) -> None:
        query = Query("q")
        entry = query.entry("entry", SCHEMA)
        entry.aggregate(by="k", window=count_window(2), count=True, name="counts").to_stream("c")
        self.node = Node(query.plan().node(name), 3)
        self.channels = Channels(self.node, Whereabouts(peers), count(1))
        self.dialled: list[tuple[int, Any, Subscribe]] = []
        self.told: dict[int, list[Any]] = {}
        self.ended: list[int] = []
        self.rests: list[tuple[int, float]] = []
        self.perform(self.node.start())

    def perform(self, commands: Any) -> None:
        for command in commands:
            match command:
                case Dial(link, address, message):
                    self.dialled.append((link, address, message))
                case Tell(link, message):
                    self.told.setdefault(link, []).append(message)
                case HangUp(link):
                    self.ended.append(link)
                case Rest(channel, ms):
                    self.rests.append((channel, ms))
                case Connect() | Answer() | Disconnect():
                    self.perform(self.channels.carry(command))
        self.channels.check_invariants()

    def hears(self, link: int, message: Any) -> None:
        self.perform(self.channels.received(link, message))

    @property
    def asked(self) -> tuple[Any, int, int]:
        """Whom the channel has asked last, from where, and for which epoch at least."""
        _, address, message = self.dialled[-1]
        return address, message.position, message.expects


def test_a_channel_is_dialled_as_soon_as_it_is_known_where() -> None:
    """Not before, and once."""
    host = Host()
    assert host.dialled == []
    host.perform(host.channels.moved("another", Peer(THERE, 9)))
    assert host.dialled == []
    host.perform(host.channels.moved("entry", Peer(HERE, 1)))
    assert host.asked == (HERE, 0, 1)
    assert host.dialled[0][2].subscriber == "counts"
    assert host.dialled[0][2].epoch == 3
    host.perform(host.channels.moved("entry", Peer(HERE, 1)))
    assert len(host.dialled) == 1


def test_an_upstream_that_runs_elsewhere_is_asked_for_what_has_not_arrived() -> None:
    """The link to where it was is hung up, and nothing that it still says is heard."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.hears(1, Begins(0, 1))
    host.hears(1, packet(0, 10))
    host.perform(host.channels.moved("entry", Peer(THERE, 2)))
    assert host.ended == [1]
    assert host.asked == (THERE, 10, 2)
    host.hears(1, packet(10, 20))
    assert host.node.merge.expected(0) == 10
    host.hears(2, packet(10, 12))
    assert host.node.merge.expected(0) == 12


def test_an_older_attempt_is_not_asked() -> None:
    """News may overtake each other; epochs do not go back."""
    host = Host(peers={"entry": Peer(THERE, 5)})
    host.perform(host.channels.moved("entry", Peer(HERE, 4)))
    assert host.asked == (THERE, 0, 5)
    assert host.ended == []


def test_a_link_that_ends_is_dialled_again_from_where_the_node_is() -> None:
    """After a rest: who has just died is not back at once."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.hears(1, packet(0, 10))
    host.perform(host.channels.closed(1))
    assert len(host.dialled) == 1
    (rest,) = host.rests
    host.perform(host.channels.rested(rest[0]))
    assert host.asked == (HERE, 10, 1)


def test_a_rest_that_is_over_when_there_is_a_link_changes_nothing() -> None:
    """It was moved in the meantime, and refused there, and taken in the end."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.hears(1, Refused("not yet", later=True))
    host.perform(host.channels.moved("entry", Peer(THERE, 2)))
    assert [link for link, _, _ in host.dialled] == [1, 2]
    host.perform(host.channels.rested(0))
    assert [link for link, _, _ in host.dialled] == [1, 2]


def test_an_upstream_that_is_lost_is_waited_for() -> None:
    """Without an address there is nothing to dial."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.perform(host.channels.moved("entry", None))
    host.perform(host.channels.closed(1))
    host.perform(host.channels.rested(0))
    assert len(host.dialled) == 1
    host.perform(host.channels.moved("entry", Peer(THERE, 2)))
    assert host.asked == (THERE, 0, 2)


def test_who_is_refused_asks_again_unless_it_cannot_be() -> None:
    """A later attempt of its own, or another history, ends it."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.hears(1, Refused("not yet", later=True))
    assert host.ended == [1]
    host.perform(host.channels.rested(0))
    assert host.asked == (HERE, 0, 1)
    with pytest.raises(Fenced, match="epoch 4"):
        host.hears(2, Refused("epoch 4 runs", fenced=True))
    with pytest.raises(HistoryMismatch, match="older"):
        host.hears(2, Refused("the log is older", misfit=True))


@pytest.mark.parametrize("nonsense", [packet(5, 10), Ack(0, 0), "hello"], ids=["gap", "ack", "str"])
def test_an_upstream_that_makes_no_sense_is_dialled_anew(nonsense: Any) -> None:
    """From what has arrived in order."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.hears(1, packet(0, 3))
    host.hears(1, nonsense)
    assert host.ended == [1]
    assert host.asked == (HERE, 3, 1)


def test_without_room_to_remember_an_upstream_it_is_asked_again_later() -> None:
    """What it would send until then is not taken."""
    host = Host(peers={"entry": Peer(HERE, 1)})
    host.perform(host.channels.no_room(1))
    assert host.ended == [1]
    host.hears(1, packet(0, 3))
    assert host.node.merge.expected(0) == 0
    (rest,) = host.rests
    assert rest[1] > 100
    host.perform(host.channels.rested(rest[0]))
    assert host.asked == (HERE, 0, 1)


# --- those who open links -------------------------------------------------------------------------

NOT_FOR_STRANGERS = {
    "an ack": Ack(0, 0),
    "tuples": packet(0, 3),
    "an answer": Begins(0, 1),
    "another node's subscription": Subscribe("counts", 0, "x", 0, 0),
    "another node's producer": Produce("counts", "entry", "x"),
    "another input's producer": Produce("entry", "nothing", "x"),
    "another node's early results": Peek("counts"),
    "nonsense": object(),
}


@pytest.mark.parametrize("what", NOT_FOR_STRANGERS)
def test_who_says_what_it_may_not_is_sent_away_alone(what: str) -> None:
    """With a word, and nobody else is disturbed."""
    host = Host("entry")
    good, bad = host.channels.accept(), host.channels.accept()
    host.hears(good, Subscribe("entry", 0, "reader", 0, 0))
    host.hears(bad, NOT_FOR_STRANGERS[what])
    assert isinstance(host.told[bad][-1], Refused)
    assert host.ended == [bad]
    host.hears(bad, Subscribe("entry", 0, "reader", 0, 0))
    assert len(host.told[bad]) == 1, "it is not heard any more"
    assert host.told[good] == [Begins(0, 3)]


@pytest.mark.parametrize(
    "again", [Subscribe("entry", 0, "r", 0, 0), Produce("entry", "entry", "p")]
)
def test_a_link_has_one_meaning(again: Any) -> None:
    """Who reads cannot begin to write on the same link, nor read twice."""
    host = Host("entry")
    link = host.channels.accept()
    host.hears(link, Subscribe("entry", 0, "r", 0, 0))
    host.hears(link, again)
    assert isinstance(host.told[link][-1], Refused)
    assert host.ended == [link]
    host.node.check_invariants()


def test_early_results_are_an_answer_and_the_end_of_the_link() -> None:
    """Or the reason why there are none."""
    host = Host()
    link = host.channels.accept()
    host.hears(link, Peek("counts"))
    assert isinstance(host.told[link][0], Packet)
    assert host.ended == [link]
    other = Host("entry")
    link = other.channels.accept()
    other.hears(link, Peek("entry"))
    assert isinstance(other.told[link][0], Packet | Refused)
    assert other.ended == [link]


def test_a_second_link_of_the_same_consumer_ends_the_first() -> None:
    """Of a node only one attempt is served."""
    host = Host("entry")
    first, second = host.channels.accept(), host.channels.accept()
    host.hears(first, Subscribe("entry", 0, "counts", 1, 0))
    host.hears(second, Subscribe("entry", 0, "counts", 2, 0))
    assert host.ended == [first]
    host.perform(host.channels.closed(first))
    assert host.node.outputs.queues[0].connection_of("counts") == second


def test_links_of_one_host_never_share_a_number() -> None:
    """Whoever opens them, and of whichever node they are."""
    numbers = count(1)
    host = Host(peers={"entry": Peer(HERE, 1)})
    other = Channels(host.node, Whereabouts(), numbers)
    own = [Channels(host.node, Whereabouts(), numbers).accept(), other.accept(), other.accept()]
    assert own == [1, 2, 3]
