"""One attempt to run a node, on a server: registered, opened, serving, left.

    registered   the coordinator has been asked for an epoch
    standing by  it has one, and another attempt runs the node: it holds what it is told to, and may
                 be welcomed again (`Standing`)
    opening      it has one: the log is opened as that epoch, its past read (`Opening`)
    serving      turns, until the server has to leave (`Serving`)
    left         its log is closed, and what still arrives changes nothing

The server calls `step` again and again, and so do all its nodes get their turns.  What always
holds: an attempt that learns that it has been superseded writes and sends nothing more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rewake.model.errors import Fenced
from rewake.net.kill_points import KillPoints
from rewake.net.nodes.opening import Opened, Opening
from rewake.net.nodes.own_recovery import OwnRecovery
from rewake.net.nodes.serving import Serving
from rewake.net.nodes.share import Line, Share
from rewake.net.nodes.standing import Standing
from rewake.net.nodes.task import NodeTask
from rewake.node.messages import KeepBookmark, Peer, Welcome
from rewake.node.whereabouts import Whereabouts

__all__ = ["NodeHost"]

# While there is nothing to do for a node that is not open.
_IDLE_SECONDS: Final = 0.05


class NodeHost:
    """One attempt of a node, in one seat of a server."""

    def __init__(self, task: NodeTask, share: Share) -> None:
        self._task = task
        self.name = task.plan.name
        self.place = task.place
        self.share = share
        self.points = KillPoints(self.name, task.faults, Path(task.folder))
        self._recovery = OwnRecovery(Path(task.folder), self.name)
        self.epoch = 0
        self._others = Whereabouts()
        self._standing: Standing | None = None
        self._opening: Opening | None = None
        self._serving: Serving | None = None

    # --- what the coordinator says -----------------------------------------------------------

    def registered(self) -> None:
        """The coordinator has been asked for an epoch."""
        self._recovery.registered()
        self.points.hit("node.registered")

    def welcomed(self, message: Welcome) -> None:
        """Here is its epoch, to stand by or to run the node; the latter may come later."""
        self.epoch = message.epoch
        self._others.welcomed(message.peers)
        if message.standby:
            self._standing = Standing(self._task, message, self.share)
            self._standing.start()
            return
        past = None if self._standing is None else self._standing.promoted()
        self._standing = None
        self._opening = Opening(
            self._task, message, self.share, self.points, self._recovery, self._on_durable, past
        )

    def moved(self, name: str, peer: Peer | None) -> None:
        """Another node runs elsewhere, or nowhere."""
        if self._serving is not None:
            self._serving.moved(name, peer)
        elif self._standing is not None:
            self._standing.moved(name, peer)
        else:
            self._others.moved(name, peer)

    def place_lost(self, place: int, epoch: int) -> None:
        """An attempt that stood by is gone for good."""
        if self._serving is not None:
            self._serving.place_lost(place, epoch)
        else:
            self._others.place_lost(place, epoch)

    def bookmark_kept(self, message: KeepBookmark) -> None:
        """What this attempt has asked the coordinator to keep is durable."""
        if self._serving is not None and message.epoch == self.epoch:
            self._serving.bookmark_kept(message.bookmark)

    def superseded(self, epoch: int) -> None:
        """A later attempt has been given an epoch."""
        self.share.failed = True
        raise Fenced(f"node {self.name!r} runs elsewhere with epoch {epoch}")

    # --- rounds ------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do what is at hand; whether there may be more at once."""
        if self._serving is not None:
            return self._serving.step()
        opened = None if self._opening is None else self._opening.step()
        if opened is None:
            return False
        self._begin(opened)
        return True

    def _begin(self, opened: Opened) -> None:
        self._opening = None
        self._serving = Serving(
            self._task, opened, self._others, self.share, self.points, self._recovery
        )
        self._serving.start()
        self.share.opened(self.name)

    @property
    def patience(self) -> float:
        """For how long there is nothing to do but wait for others."""
        return _IDLE_SECONDS if self._serving is None else self._serving.patience

    def admit(self, line: Line, messages: list[Any]) -> None:
        """Somebody has come to this node, which is open."""
        assert self._serving is not None
        self.share.answer_for(self._serving.links.admit, line, messages)

    def _on_durable(self) -> None:
        if self._serving is not None:
            self._serving.on_durable()

    # --- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more turns; who reads from it is still served."""
        if self._serving is not None:
            self._serving.stop()

    def linger(self) -> bool:
        """Of a stream that is over, clients are to have the end: whether some have not."""
        return self._serving is not None and self._serving.linger()

    def leave(self) -> None:
        """Make durable what there is, close, and say nothing more but how far that is."""
        if self._serving is not None:
            self._serving.leave()
        elif self._opening is not None:
            self._opening.close()
