"""What a node has of its server: timers and wakeups of the one loop, lines, the coordinator's ear.

What always holds: an error in anything that is called through a node's share is known to be that
node's (`failed`); a line to a node of the same server is a lane, to any other a socket, and both
are to a node the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection
from rewake.net.wire.loop import Loop, Wakeup
from rewake.node.channels.lane import Hearer, Lane, lane
from rewake.node.messages import Address

__all__ = ["Line", "Share"]

Line = Connection | Lane


class Building(Protocol):
    """The server, as far as it matters here."""

    loop: Loop
    token: Token

    @property
    def address(self) -> Address:
        """Where it listens."""

    @property
    def reception(self) -> Hearer:
        """Who is told what those say who come to it."""

    def tell(self, message: object) -> None:
        """Say something to the coordinator."""

    def opened(self, node: str) -> None:
        """A node can be come to from now on."""


class Share:
    """One node's."""

    def __init__(self, building: Building) -> None:
        self._building = building
        self._loop = building.loop
        self.now = self._loop.now
        self.tell = building.tell
        self.opened = building.opened
        self.failed = False

    @property
    def address(self) -> Address:
        """Where the server listens."""
        return self._building.address

    # --- the loop ----------------------------------------------------------------------------

    def call_after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once, after so many seconds."""
        self._loop.call_after(seconds, lambda: self.answer_for(call))

    def wakeup(self, call: Callable[[], None]) -> Wakeup:
        """Something that other threads can set to have `call` called."""
        return self._loop.wakeup(lambda: self.answer_for(call))

    def answer_for(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call; when that fails, it is this node's doing."""
        try:
            return call(*arguments)
        except BaseException:
            self.failed = True
            raise

    # --- lines -------------------------------------------------------------------------------

    def dial(self, address: Address, hearer: Hearer) -> Line:
        """Open a line to whoever listens there; `hearer` is told what it says."""
        heard = _Answering(self, hearer)
        if address == self._building.address:
            return lane(self._soon, heard, self._building.reception)[0]
        connection = Connection.connect(address, self._building.token, self._loop.now())
        self._loop.add(connection, heard)
        return connection

    def _soon(self, call: Callable[[], None]) -> None:
        self._loop.call_after(0.0, call)

    def take(self, line: Line, hearer: Hearer) -> None:
        """A line that has come to the server is this node's from now on."""
        heard = _Answering(self, hearer)
        if isinstance(line, Lane):
            line.hearer = heard
        else:
            self._loop.hand_over(line, heard)


class _Answering:
    """Tells a node's hearer, and knows whose error it is (a `Handler` of the loop)."""

    def __init__(self, share: Share, hearer: Hearer) -> None:
        self._share = share
        self._hearer = hearer

    def authenticated(self, connection: Connection) -> None:
        """Whoever was dialled is there; the first word is ours."""

    def received(self, line: Line, messages: list[Any]) -> None:
        """Messages."""
        self._share.answer_for(self._hearer.received, line, messages)

    def closed(self, line: Line) -> None:
        """It has ended by itself."""
        self._share.answer_for(self._hearer.closed, line)
