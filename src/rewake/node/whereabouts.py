"""What the coordinator says of others to one attempt of a node: where they run, and who is lost.

It is said from the attempt's welcome on, and so before its node is open: a host tells it at once,
and its `Channels` go by it from their beginning.  What always holds: of two attempts of another
node the later is known, until that is lost; a place that is lost stays so.
"""

from __future__ import annotations

from collections.abc import Mapping

from rewake.node.messages import Peer

__all__ = ["Whereabouts"]


class Whereabouts:
    """What is known to one attempt of a node."""

    def __init__(self, peers: Mapping[str, Peer] | None = None) -> None:
        self.peers: dict[str, Peer] = dict(peers or {})
        # By place of its own node: the latest attempt that is lost.
        self._lost: dict[int, int] = {}

    def welcomed(self, peers: Mapping[str, Peer]) -> None:
        """This is where all run now; who was lost before stays lost."""
        self.peers = dict(peers)

    def moved(self, name: str, peer: Peer | None) -> bool:
        """A node runs elsewhere, or nowhere: whether it is another than was known."""
        if peer is None:
            self.peers.pop(name, None)
            return False
        known = self.peers.get(name)
        if known is not None and peer.epoch <= known.epoch:
            return False
        self.peers[name] = peer
        return True

    def place_lost(self, place: int, epoch: int) -> None:
        """An attempt that stood by is gone for good."""
        self._lost[place] = max(epoch, self._lost.get(place, 0))

    def is_lost(self, place: int, epoch: int) -> bool:
        """Whether this attempt, or a later one at its place, is gone for good."""
        return epoch <= self._lost.get(place, 0)
