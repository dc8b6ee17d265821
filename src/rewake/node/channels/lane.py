"""A link between two nodes of one server: messages are handed over as they are, without a socket.

It has two ends, and each is to its node what a connection is.  What always holds: what one end says
the other is told in that order, once, and never before whoever said it is done with what it was at;
an end is told once that the other has ended it, after all that was said before, and nothing after
that; who has ended it is told nothing more.  What is under way is bounded as on any link: by the
window of a subscriber, and by its acks.

The host's duty: `soon` calls what it is given, once, in the order given, and not at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rewake.node.messages import Packet

__all__ = ["Hearer", "Lane", "lane"]

Soon = Callable[[Callable[[], None]], None]

# What a message without a payload holds in memory, roughly.
_SMALL_BYTES = 64


class Hearer(Protocol):
    """Who is told what is said on a lane."""

    def received(self, line: Any, messages: list[Any]) -> None:
        """Messages in the order in which they were said; never none."""

    def closed(self, line: Any) -> None:
        """The other has ended it."""


class Lane:
    """One end; made in pairs by `lane`."""

    def __init__(self, soon: Soon, hearer: Hearer) -> None:
        self.hearer = hearer
        self.other: Lane
        self._soon = soon
        self._inbox: deque[Any] = deque()
        self._open = True
        # The other has ended it, and this end has not been told yet.
        self._ending = False
        self._called = False

    def send(self, message: object) -> None:
        """Say something; dropped silently when either end has ended it."""
        if self._open and self.other._open:
            self.other._inbox.append(message)
            self.other._call()

    def finish(self, now: float = 0.0) -> None:  # noqa: ARG002 (a connection needs the time)
        """End it behind all that this end has said."""
        if self._open:
            self._open = False
            self._inbox.clear()
            self.other._ending = True
            self.other._call()

    def close(self) -> None:
        """End it at once: what is under way is lost."""
        if self._open:
            self.other._inbox.clear()
            self.finish()

    @property
    def queued_bytes(self) -> int:
        """What the other has not been told yet, roughly."""
        waiting = self.other._inbox
        return sum(each.size if isinstance(each, Packet) else _SMALL_BYTES for each in waiting)

    def _call(self) -> None:
        if self._open and not self._called:
            self._called = True
            self._soon(self._tell)

    def _tell(self) -> None:
        self._called = False
        if not self._open:
            return
        messages = list(self._inbox)
        self._inbox.clear()
        if messages:
            self.hearer.received(self, messages)
        if self._ending and self._open:
            self._open = False
            self.hearer.closed(self)


def lane(soon: Soon, one: Hearer, other: Hearer) -> tuple[Lane, Lane]:
    """The two ends of a new one, and who is told what at each."""
    ends = Lane(soon, one), Lane(soon, other)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends
