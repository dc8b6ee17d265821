"""The place that stands by: what it holds, and how it answers.

What always holds: records are held in order and without gap, up to where they go on; what has been
said to be held is there when the place is promoted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

from rewake.log.frame import Frame
from rewake.recovery.driven import LogSoFar, Standby
from rewake.recovery.standby.words import NOTHING_HELD, Assembly, Message, answer

__all__ = ["HoldingPlace"]


class HoldingPlace(Standby):
    """Puts messages together and answers them; what they mean is up to those who derive."""

    def __init__(self) -> None:
        self._assembly = Assembly()
        self.frames: deque[Frame] = deque()
        # The record that it wants next.
        self.next = NOTHING_HELD
        self._position = 0

    def opened(self) -> Sequence[bytes]:
        """What it wants; pieces of a message that a link has cut short come again."""
        self._assembly = Assembly()
        return [answer(self.next)]

    def heard(self, words: bytes) -> Sequence[bytes]:
        """Do as a message says, when it is whole."""
        message = self._assembly.heard(words)
        if message is None or not self._told(message):
            return []
        while self.frames and self.frames[0].sequence < message.first:
            self.frames.popleft()
        self.next, self._position = message.next, message.position
        return [answer(self.next)]

    @abstractmethod
    def _told(self, message: Message) -> bool:
        """Take in a message; whether it could go on from there."""

    def past(self) -> LogSoFar:
        """It is promoted."""
        return LogSoFar(tuple(reversed(self.frames)), self.next, self._position)
