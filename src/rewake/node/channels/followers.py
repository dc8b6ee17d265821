"""The places that stand by where this node runs: who has connected, and what is said to whom.

What always holds: of a place only the latest attempt is heard, and none that the coordinator has
said to be lost.  What is said to a place without a link is dropped; a place that connects again
says first where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewake.model.errors import BadPeer
from rewake.node.commands import Announce, Answer, Disconnect, HostCommand, LinkCommand, Tell
from rewake.node.messages import Follow, InSync, Refused, Words
from rewake.node.node import Node
from rewake.node.whereabouts import Whereabouts
from rewake.recovery.driven import Say, Vouch

__all__ = ["Followers"]


class Followers:
    """Those who stand by one attempt of a node."""

    def __init__(self, node: Node, others: Whereabouts) -> None:
        self._node = node
        self._others = others
        self._links: dict[int, int] = {}  # by place
        # By place: the latest attempt that has connected.
        self._epochs: dict[int, int] = {}

    # --- what the node asks for --------------------------------------------------------------

    def carry(self, command: Say | Vouch) -> Sequence[LinkCommand]:
        """What the node's command means for its links."""
        match command:
            case Say(place, words):
                link = self._links.get(place)
                return [] if link is None else [Tell(link, Words(words))]
            case Vouch(place):
                node, epoch = self._node.plan.name, self._node.epoch
                return [Announce(InSync(node, epoch, place, self._epochs[place]))]

    # --- what links say ----------------------------------------------------------------------

    def follow(self, link: int, message: Follow) -> Sequence[HostCommand]:
        """A place stands by from now on."""
        place, epoch = message.place, message.epoch
        if not 0 <= place < self._node.plan.places:
            raise BadPeer(f"node {self._node.plan.name!r} has no place {place} to stand by")
        known = self._epochs.get(place, 0)
        if epoch < known or self._others.is_lost(place, epoch):
            return [Answer(link, Refused(f"epoch {epoch} was superseded", fenced=True))]
        earlier = self._links.get(place)
        commands: list[HostCommand] = []
        if earlier is not None:
            commands.append(Disconnect(earlier))
        if known < epoch and not self._others.is_lost(place, known):
            # Its predecessor was given up before it was given an epoch; that word is on its way.
            commands += self._node.left(place)
        self._links[place], self._epochs[place] = link, epoch
        return [*commands, *self._node.joined(place)]

    def heard(self, link: int, words: bytes) -> Sequence[HostCommand]:
        """A place says something."""
        place = self._place_of(link)
        return [] if place is None else self._node.heard(place, words)

    def gone(self, link: int) -> None:
        """A link has ended; its place may be back, or is said to be lost."""
        place = self._place_of(link)
        if place is not None:
            del self._links[place]

    def _place_of(self, link: int) -> int | None:
        return next((place for place, each in self._links.items() if each == link), None)

    # --- what the coordinator says -----------------------------------------------------------

    def lost(self, place: int, epoch: int) -> Sequence[HostCommand]:
        """An attempt at a place is gone for good."""
        self._others.place_lost(place, epoch)
        if self._epochs.get(place) != epoch:
            return []  # it never came, or its successor is here already
        link = self._links.pop(place, None)
        disconnect = [] if link is None else [Disconnect(link)]
        return [*disconnect, *self._node.left(place)]
