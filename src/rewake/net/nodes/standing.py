"""A place of a node that stands by, on a server: its one line, and its signs of life.

What it holds and what it says is `StandingBy`'s; here bytes are carried.  What always holds: once
it is promoted nothing more of what its line said is heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from rewake.net.nodes.share import Line, Share
from rewake.net.nodes.task import NodeTask
from rewake.node.commands import Dial, HangUp, LinkCommand, Rest, Tell
from rewake.node.coordinator.failure_detector import HEARTBEAT_MS
from rewake.node.messages import Heartbeat, Peer, Welcome
from rewake.node.standing_by import StandingBy
from rewake.recovery.driven import LogSoFar

__all__ = ["Standing"]


class Standing:
    """One attempt at a place, until it is promoted or its server leaves."""

    def __init__(self, task: NodeTask, welcome: Welcome, share: Share) -> None:
        self._name = task.plan.name
        self._epoch = welcome.epoch
        self._share = share
        self._standing = StandingBy(task.plan, task.place, welcome.epoch, welcome.peers, count(1))
        self._line: Line | None = None
        self._link = 0
        self._over = False

    def start(self) -> None:
        """Go to where the node runs, and from now on give signs of life."""
        self._carry_out(self._standing.start())
        self._heartbeat()

    def moved(self, name: str, peer: Peer | None) -> None:
        """A node runs elsewhere, or nowhere."""
        self._carry_out(self._standing.moved(name, peer))

    def promoted(self) -> LogSoFar:
        """The node runs here from now on, with this past."""
        commands, past = self._standing.promoted()
        self._carry_out(commands)
        self._over = True
        return past

    def _heartbeat(self) -> None:
        if not self._over:
            self._share.tell(Heartbeat(self._name, self._epoch, {"standby": True}))
            self._share.call_after(HEARTBEAT_MS / 1e3, self._heartbeat)

    # --- its line ----------------------------------------------------------------------------

    def _carry_out(self, commands: Sequence[LinkCommand]) -> None:
        for command in commands:
            match command:
                case Dial(link, address, message):
                    self._link, self._line = link, self._share.dial(address, self)
                    self._line.send(message)
                case Tell(link, message) if link == self._link and self._line is not None:
                    self._line.send(message)
                case HangUp() if self._line is not None:
                    line, self._line = self._line, None
                    line.close()
                case Rest(_, ms):
                    self._share.call_after(ms / 1e3, self._rested)

    def _rested(self) -> None:
        if not self._over:
            self._carry_out(self._standing.rested())

    def received(self, line: Line, messages: list[Any]) -> None:
        """What is said where the node runs."""
        for message in messages:
            if line is self._line:
                self._carry_out(self._standing.received(self._link, message))

    def closed(self, line: Line) -> None:
        """It has ended by itself."""
        if line is self._line:
            self._line = None
            self._carry_out(self._standing.closed(self._link))
