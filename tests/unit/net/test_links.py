"""The links of a node over real sockets: what is dialled, said, hung up, and told of once."""

from collections.abc import Iterator, Sequence
from itertools import count

import pyarrow as pa
import pytest
from net_vocabulary import Building, World, world

from rewake.graph.query import Query
from rewake.net.nodes.links import Links
from rewake.net.nodes.share import Share
from rewake.node.channels.channels import Channels
from rewake.node.commands import Dial, HangUp, HostCommand, Tell
from rewake.node.messages import Begins, Refused, Stop, Subscribe
from rewake.node.node import Node
from rewake.node.whereabouts import Whereabouts

ASKING = Subscribe("items", 0, "entry", 0, 0)


class There:
    """A node's links in the loop of a world, whose server is somebody else's node."""

    def __init__(self, outside: World) -> None:
        query = Query("linked")
        query.entry("entry", pa.schema([("k", pa.int64())])).to_stream("entry")
        node = Node(query.plan().node("entry"), 1)
        self.outside = outside
        self.gone: list[int] = []
        self.told: list[tuple[str, list[HostCommand]]] = []
        share = Share(Building(outside.loop))
        self.links = Links(
            Channels(node, Whereabouts(), count(100)), share, self.perform, self.gone.append
        )

    def perform(self, event: str, commands: Sequence[HostCommand]) -> None:
        """Note what it is, and do what concerns links."""
        self.told.append((event, list(commands)))
        for command in commands:
            if isinstance(command, Tell | HangUp | Dial):
                self.links.carry_out(command)

    def dial(self, link: int) -> None:
        """Have a link to the server, over which the first thing has been said."""
        before = len(self.outside.server.messages)
        self.links.carry_out(Dial(link, self.outside.listener.address, ASKING))
        self.outside.until(lambda: len(self.outside.server.messages) > before)


@pytest.fixture
def there() -> Iterator[There]:
    with world() as outside:
        yield There(outside)


def test_who_is_dialled_hears_first_what_is_wanted(there: There) -> None:
    """And then what is told, in order."""
    there.dial(1)
    there.links.tell(1, Stop("one"))
    there.links.carry_out(Tell(1, Stop("two")))
    server = there.outside.server
    there.outside.until(lambda: len(server.messages) == 3)
    assert server.messages == [ASKING, Stop("one"), Stop("two")]


def test_a_link_that_was_hung_up_says_nothing_more_and_hears_nothing(there: There) -> None:
    """Its end is no news to the node; those who keep something for it are told."""
    there.dial(1)
    there.outside.server.connections[0].send(Begins(0, 1))
    there.links.carry_out(HangUp(1, at_once=True))
    assert there.gone == [1]
    there.links.tell(1, Stop("too late"))
    there.links.carry_out(HangUp(1, at_once=True))
    there.outside.until(lambda: there.outside.server.ended)
    there.outside.rounds()
    assert there.gone == [1]
    assert there.told == []
    assert there.outside.server.messages == [ASKING]


def test_who_is_hung_up_gently_hears_what_was_said_last(there: There) -> None:
    """A refusal that is lost would look like a crash."""
    there.dial(1)
    there.links.tell(1, Refused("no such output"))
    there.links.carry_out(HangUp(1, at_once=False))
    server = there.outside.server
    there.outside.until(lambda: len(server.messages) == 2)
    assert server.messages[-1] == Refused("no such output")


def test_a_link_that_ends_by_itself_is_told_of_once(there: There) -> None:
    """Whether it was dialled or has come."""
    there.dial(1)
    there.outside.server.connections[0].close()
    there.outside.until(lambda: there.gone)
    there.outside.rounds()
    assert there.gone == [1]
    assert len(there.told) == 1
    assert there.links.unsent_bytes == 0
