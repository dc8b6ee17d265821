"""The links of a node: to its upstreams, from its subscribers and producers.

A link is one connection, known by a number.  A channel is an input that another node feeds; it has
one link at a time, and a new one whenever that ends or its upstream runs elsewhere.

The host's duties: perform the commands in the order given; tell what a link says (`received`) and
that it has ended without our doing (`closed`), in order; give each link that somebody else opens
the next of `numbers`; call `rested` when a `Rest` is over.  When a `Remember` has no room, it takes
back what the link said with `no_room`.

What always holds: of a channel, only what its present link delivers reaches the node; when a link
ends, the node is told (`lost`) before anything of a later one arrives; an upstream that is known to
run under a higher epoch is never asked again under a lower one; who says what its place does not
allow is sent away, and nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rewake.model.errors import BadPeer, Fenced, HistoryMismatch, UsageError
from rewake.node.channels.followers import Followers
from rewake.node.commands import (
    Answer,
    Connect,
    Dial,
    Disconnect,
    HangUp,
    HostCommand,
    LinkCommand,
    Rest,
    Tell,
)
from rewake.node.messages import (
    Ack,
    Begins,
    Follow,
    Packet,
    Peek,
    Peer,
    Produce,
    Refused,
    Subscribe,
    Words,
)
from rewake.node.node import Node
from rewake.node.whereabouts import Whereabouts
from rewake.recovery.driven import Say, Vouch

__all__ = ["Channels"]

# After a link has ended, or was refused: the other may be there in a moment.
_RETRY_MS: Final = 20.0
# Until there may be room again to remember where input comes from.
_FULL_MS: Final = 250.0


class _Role(Enum):
    """What somebody who has opened a link is to us."""

    STRANGER = "has not said yet what it wants"
    SUBSCRIBER = "reads an output"
    PRODUCER = "writes into an entry"
    FOLLOWER = "stands by"


@dataclass(slots=True)
class _Channel:
    """An input from another node: from where it is wanted, and its link, if there are any yet."""

    number: int
    upstream: str
    output: int
    wanted: int | None = None
    link: int | None = None


class Channels:
    """All links of one attempt of a node; `numbers` are shared by whoever shares a host."""

    def __init__(self, node: Node, others: Whereabouts, numbers: Iterator[int]) -> None:
        self.node = node
        self._numbers = numbers
        self._others = others
        self._channels = {
            number: _Channel(number, each.upstream, each.output)
            for number, each in enumerate(node.plan.inputs)
            if each.upstream is not None
        }
        self._channel_of: dict[int, _Channel] = {}
        # Of the links that others have opened.
        self._roles: dict[int, _Role] = {}
        self._followers = Followers(node, others)

    # --- what the node asks for --------------------------------------------------------------

    def link_of(self, channel: int) -> int | None:
        """The link of a channel, if there is one now."""
        each = self._channels.get(channel)
        return None if each is None else each.link

    def dialled(self, link: int) -> bool:
        """Whether it is a channel's, not one that somebody else has opened."""
        return link in self._channel_of

    def carry(self, command: Connect | Answer | Disconnect | Say | Vouch) -> Sequence[LinkCommand]:
        """What the node's command means for its links."""
        match command:
            case Connect(channel, position):
                each = self._channels[channel]
                each.wanted = position
                return [*self._drop(each), *self._dial(each)]
            case Answer(link, message):
                if link not in self._roles:
                    return []
                refused = isinstance(message, Refused)
                return [Tell(link, message), *(self._hang_up(link) if refused else ())]
            case Disconnect(link):
                return [] if self._forget(link) is None else [HangUp(link, at_once=True)]
            case Say() | Vouch():
                return self._followers.carry(command)

    def _dial(self, channel: _Channel) -> Sequence[LinkCommand]:
        """Subscribe if that is wanted, not done yet, and known where."""
        peer = self._others.peers.get(channel.upstream)
        if channel.wanted is None or channel.link is not None or peer is None:
            return []
        channel.link = next(self._numbers)
        self._channel_of[channel.link] = channel
        message = Subscribe(
            node=channel.upstream,
            output=channel.output,
            subscriber=self.node.plan.name,
            epoch=self.node.epoch,
            position=channel.wanted,
            expects=peer.epoch,
        )
        return [Dial(channel.link, peer.address, message)]

    def _drop(self, channel: _Channel) -> Sequence[LinkCommand]:
        if channel.link is None:
            return []
        link, channel.link = channel.link, None
        del self._channel_of[link]
        return [HangUp(link, at_once=True)]

    def _lose(self, channel: _Channel) -> Sequence[HostCommand]:
        channel.wanted = None
        return [*self._drop(channel), *self.node.lost(channel.number)]

    # --- where upstreams are -----------------------------------------------------------------

    def moved(self, name: str, peer: Peer | None) -> Sequence[HostCommand]:
        """An upstream runs elsewhere now, or is lost."""
        if not self._others.moved(name, peer):
            return []
        commands: list[HostCommand] = []
        for channel in self._channels.values():
            if channel.upstream != name:
                continue
            # Its link, if it has one, leads to an attempt that has been superseded.
            has_link = channel.link is not None
            commands += self._lose(channel) if has_link else self._dial(channel)
        return commands

    def place_lost(self, place: int, epoch: int) -> Sequence[HostCommand]:
        """An attempt at a place that stood by is gone for good."""
        return self._followers.lost(place, epoch)

    def rested(self, channel: int) -> Sequence[HostCommand]:
        """What a channel rested for is over: it may ask again."""
        each = self._channels[channel]
        if each.link is not None:
            return []
        return self.node.lost(channel) if each.wanted is None else self._dial(each)

    # --- what links say ----------------------------------------------------------------------

    def accept(self) -> int:
        """Somebody has opened a link; its number."""
        link = next(self._numbers)
        self._roles[link] = _Role.STRANGER
        return link

    def received(self, link: int, message: object) -> Sequence[HostCommand]:
        """A link has said something; what a dropped one says is not heard.

        Raises Fenced when a later attempt runs this node, and HistoryMismatch.
        """
        channel = self._channel_of.get(link)
        if channel is not None:
            return self._from_upstream(channel, message)
        if link not in self._roles:
            return []
        try:
            return self._from_outside(link, message)
        except BadPeer as error:
            return [Tell(link, Refused(str(error))), HangUp(link), *self._gone(link)]

    def _from_upstream(self, channel: _Channel, message: object) -> Sequence[HostCommand]:
        match message:
            case Packet():
                try:
                    return self.node.arrived(channel.number, message)
                except BadPeer:
                    return self._lose(channel)
            case Begins(position, _, lineage):
                return self.node.began(channel.number, position, lineage)
            case Refused(reason, fenced, misfit):
                if fenced:
                    raise Fenced(reason)
                if misfit:
                    raise HistoryMismatch(reason)
                return [*self._drop(channel), Rest(channel.number, _RETRY_MS)]
        return self._lose(channel)

    def no_room(self, link: int) -> Sequence[HostCommand]:
        """Where its input is from cannot be remembered: take nothing from this link, ask again.

        From where the node is by then: it may have come far since it first asked.
        """
        channel = self._channel_of.get(link)
        if channel is None:
            return []
        channel.wanted = None
        return [*self._drop(channel), Rest(channel.number, _FULL_MS)]

    def _from_outside(self, link: int, message: object) -> Sequence[HostCommand]:
        match self._roles[link], message:
            case _Role.SUBSCRIBER, Ack():
                return self.node.acked(link, message)
            case _Role.PRODUCER, Packet():
                assert self.node.producers is not None
                return self.node.producers.arrived(link, message)
            case _Role.FOLLOWER, Words(words):
                return self._followers.heard(link, bytes(words))
            case _Role.STRANGER, Follow():
                self._check_name(message.node)
                self._roles[link] = _Role.FOLLOWER
                return self._followers.follow(link, message)
            case _Role.STRANGER, Subscribe():
                self._check_name(message.node)
                self._roles[link] = _Role.SUBSCRIBER
                return self.node.subscribed(link, message)
            case _Role.STRANGER, Produce():
                return self._produce(link, message)
            case _Role.STRANGER, Peek():
                self._check_name(message.node)
                return [Tell(link, self._early()), *self._hang_up(link)]
        raise BadPeer(f"a peer sent {type(message).__name__} out of turn")

    def _check_name(self, name: str) -> None:
        if name != self.node.plan.name:
            raise BadPeer(f"this is node {self.node.plan.name!r}, not {name!r}")

    def _early(self) -> Packet | Refused:
        try:
            return self.node.early()
        except UsageError as error:
            return Refused(str(error))

    def _hang_up(self, link: int) -> Sequence[LinkCommand]:
        self._forget(link)
        return [HangUp(link)]

    def _produce(self, link: int, message: Produce) -> Sequence[HostCommand]:
        producers, plan = self.node.producers, self.node.plan
        names = [each.name for each in plan.inputs if each.produced]
        if producers is None or message.node != plan.name or message.channel not in names:
            raise BadPeer(f"node {plan.name!r} takes no tuples for {message.channel!r:.100}")
        self._roles[link] = _Role.PRODUCER
        return producers.claimed(link, message)

    # --- links that end ----------------------------------------------------------------------

    def closed(self, link: int) -> Sequence[HostCommand]:
        """A link has ended: an upstream may be back under the same address, or somewhere else."""
        channel = self._channel_of.pop(link, None)
        if channel is None:
            return self._gone(link)
        channel.link = channel.wanted = None
        return [Rest(channel.number, _RETRY_MS)]

    def _gone(self, link: int) -> Sequence[HostCommand]:
        role = self._forget(link)
        return self.node.unsubscribed(link) if role is _Role.SUBSCRIBER else []

    def _forget(self, link: int) -> _Role | None:
        """What it was, if somebody else had opened it."""
        role = self._roles.pop(link, None)
        if role is _Role.PRODUCER:
            assert self.node.producers is not None
            self.node.producers.gone(link)
        if role is _Role.FOLLOWER:
            self._followers.gone(link)
        return role

    # --- for tests ---------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """What always holds between events."""
        for link, channel in self._channel_of.items():
            assert channel.link == link, "a link that its channel does not know"
        linked = [each for each in self._channels.values() if each.link is not None]
        assert len(linked) == len(self._channel_of), "a channel with a link that nobody knows"
        assert not self._roles.keys() & self._channel_of.keys(), "a link with two meanings"
        self.node.check_invariants()
