"""A place of a node that stands by: it holds what its approach tells it to, until it is promoted.

It connects to where the node runs and says what its approach has to say.  When that is gone it
waits, with all that it holds: either the coordinator promotes it, or it hears where the node runs
now.  What always holds: once promoted it says nothing more, so that nobody else takes anything for
held here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rewake.graph.plan.plan import NodePlan
from rewake.model.errors import BadPeer, Fenced
from rewake.node.commands import Dial, HangUp, LinkCommand, Rest, Tell
from rewake.node.messages import Follow, Peer, Refused, Words
from rewake.recovery.driven import LogSoFar

__all__ = ["StandingBy"]

# Its one link has this channel's rests.
_ONLY: Final = 0
_RETRY_MS: Final = 50.0


class StandingBy:
    """One attempt at a place; `numbers` of links are shared by whoever shares a host."""

    def __init__(
        self, plan: NodePlan, place: int, epoch: int, peers: Mapping[str, Peer],
        numbers: Iterator[int],
    ) -> None:  # fmt: skip
        self.plan = plan
        self.place = place
        self.epoch = epoch
        self._peer = peers.get(plan.name)
        self._numbers = numbers
        self._link: int | None = None
        program, schemas = plan.program, plan.input_schemas
        self._standby = plan.approach.stand_by(lambda: program.operator(*schemas), program.emit)

    def start(self) -> Sequence[LinkCommand]:
        """Connect, if it is known where the node runs."""
        if self._peer is None or self._link is not None:
            return []
        self._link = next(self._numbers)
        follow = Follow(self.plan.name, self.place, self.epoch)
        said = [Tell(self._link, Words(each)) for each in self._standby.opened()]
        return [Dial(self._link, self._peer.address, follow), *said]

    def moved(self, name: str, peer: Peer | None) -> Sequence[LinkCommand]:
        """The node runs elsewhere now, or is lost; what others do means nothing here."""
        if name != self.plan.name or peer == self._peer:
            return []
        self._peer = peer
        return [*self._hang_up(), *self.start()]

    def received(self, link: int, message: object) -> Sequence[LinkCommand]:
        """Where the node runs has said something.  Raises Fenced when another is at this place."""
        if link != self._link:
            return []
        match message:
            case Words(words):
                try:
                    return [Tell(link, Words(each)) for each in self._standby.heard(bytes(words))]
                except BadPeer:
                    pass  # begin the conversation again
            case Refused(reason, fenced) if fenced:
                raise Fenced(reason)
        return [*self._hang_up(), Rest(_ONLY, _RETRY_MS)]

    def closed(self, link: int) -> Sequence[LinkCommand]:
        """The link has ended: it is asked for again, unless something else is heard before."""
        if link != self._link:
            return []
        self._link = None
        return [Rest(_ONLY, _RETRY_MS)]

    def rested(self) -> Sequence[LinkCommand]:
        """Try again."""
        return self.start()

    def promoted(self) -> tuple[Sequence[LinkCommand], LogSoFar]:
        """The node is to run here, from what is held."""
        hung_up = self._hang_up()
        self._peer = None
        return hung_up, self._standby.past()

    def _hang_up(self) -> Sequence[LinkCommand]:
        link, self._link = self._link, None
        return [] if link is None else [HangUp(link, at_once=True)]
