"""Who stands in the doorway: strangers, who have connected and have not proven who they are.

A door cannot tell an honest peer from a flood before it has answered the challenge.  So a full
doorway drops one of those who stand in it by lot.  Were it the oldest, a flood would push out
everybody who takes longer to answer than the flood takes to fill the doorway; were it the newest, a
flood that holds its places would keep everybody out.  By lot, an honest peer who needs the time of
`k` arrivals stays with probability (1 - 1/places)^k, whatever the flood does, and comes again soon
when it did not.

What always holds: at most `places` strangers stand in it; who has been let in, or has left, is
never dropped.

The host: admits whoever connects, and drops whom `admit` names; serves those who have said
something before it admits more, so that a proof that has arrived is never dropped unread; and
admits a bounded number at a time, so that those inside are served meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PLACES", "Doorway"]

# With 256, a peer that answers within 5 ms stays with 5 of 6 chances at 9,000 strangers a second.
PLACES = 256

Stranger = TypeVar("Stranger")


class Doorway(Generic[Stranger]):
    """The strangers at one door.

    `waits` tells whether somebody is still a stranger; `lot` draws a number below the given one.
    """

    def __init__(
        self, places: int, waits: Callable[[Stranger], bool], lot: Callable[[int], int]
    ) -> None:
        assert places > 0
        self._places = places
        self._waits = waits
        self._lot = lot
        self._standing: list[Stranger] = []
        # How many were dropped so far.
        self.dropped = 0

    def __len__(self) -> int:
        self.forget()
        return len(self._standing)

    def admit(self, stranger: Stranger) -> Stranger | None:
        """Somebody comes; whom to drop for it, if anybody."""
        dropped = None
        if len(self._standing) >= self._places:
            self.forget()
        if len(self._standing) >= self._places:
            dropped = self._dropped(self._draw())
        self._standing.append(stranger)
        return dropped

    def drop(self) -> Stranger | None:
        """Whom to drop because there is no room for anybody at all; None when nobody is there."""
        self.forget()
        return self._dropped(self._draw()) if self._standing else None

    def forget(self) -> None:
        """Forget those who are strangers no more: they need no place."""
        self._standing = [each for each in self._standing if self._waits(each)]

    def _draw(self) -> Stranger:
        drawn = self._lot(len(self._standing))
        last = self._standing.pop()
        if drawn == len(self._standing):
            return last
        stranger, self._standing[drawn] = self._standing[drawn], last
        return stranger

    def _dropped(self, stranger: Stranger) -> Stranger:
        self.dropped += 1
        return stranger
