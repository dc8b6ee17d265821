"""Who is started again, and when that is in vain.

A node is wanted until its query is over.  An attempt that ends before is followed by another,
however it ended: only the coordinator lets a node go, so neither an exit code of 0 nor a task that
returned says that a node is done.

What always holds: an end counts only *in vain*, that is after a short life that got no further than
those before it.  Whoever lived long enough, or got further, has shown that starting it again is
worth the while, and what was counted is forgotten.  So failures far apart never add up, and one
that comes again and again at the same place does.

The host's duties: say when an attempt starts, when it is heard of and how far it is, and when it
has ended; when `ended` is true, stop trying and say why.
"""

from __future__ import annotations

from dataclasses import dataclass

# An attempt that lived for this long has shown that it can.
LIVED_MS = 10_000.0


@dataclass(slots=True)
class _Lives:
    started_ms: float
    heard_ms: float
    in_vain: int = 0
    # When the first of the attempts began that were in vain.
    since_ms: float = 0.0
    furthest: float = float("-inf")
    got_further: bool = False


class Supervision:
    """Counts the ends in vain of each of many, by name.

    It gives up after `allowed` in a row, if they took `within_ms` or longer.
    """

    def __init__(self, allowed: int, within_ms: float = 0.0) -> None:
        self.allowed = allowed
        self._within_ms = within_ms
        self._lives: dict[str, _Lives] = {}

    def started(self, who: str, now_ms: float) -> None:
        """Another attempt begins."""
        lives = self._lives.setdefault(who, _Lives(now_ms, now_ms))
        lives.started_ms = lives.heard_ms = now_ms
        lives.got_further = False

    def heard(self, who: str, now_ms: float, position: float | None = None) -> None:
        """It lives, and is at this position of its work, where that is known."""
        lives = self._lives.get(who)
        if lives is None:
            return
        lives.heard_ms = now_ms
        if position is not None and position > lives.furthest:
            # The first position that is ever known is where it began, not how far it got.
            lives.got_further = lives.furthest > float("-inf")
            lives.furthest = position

    def ended(self, who: str) -> bool:
        """It ended unasked: whether to give it up, because that was in vain too often in a row."""
        lives = self._lives.get(who)
        if lives is None:
            return False
        lived = lives.heard_ms - lives.started_ms >= LIVED_MS
        if lived or lives.got_further:
            lives.in_vain = 0
            return False
        if not lives.in_vain:
            lives.since_ms = lives.started_ms
        lives.in_vain += 1
        long_enough = lives.heard_ms - lives.since_ms >= self._within_ms
        return lives.in_vain >= self.allowed and long_enough

    def in_vain(self, who: str) -> int:
        """How often it ended in vain since it last got somewhere."""
        lives = self._lives.get(who)
        return 0 if lives is None else lives.in_vain


__all__ = ["LIVED_MS", "Supervision"]
