"""Which servers are alive: a lost connection is a death at once, silence after a while.

A detector that errs is harmless to the results: whoever was declared dead wrongly is superseded by
an attempt with a higher epoch, and everything it still says or writes is refused.  But on a busy
machine it makes the machine busier, and must not err again and again.  So it goes by what
heartbeats really do:

- silence is counted only while somebody listened: when the coordinator itself gets no processor,
  its clock of silence stands still;
- a server may be silent for three times the longest gap between heartbeats of the last minute or
  two, its own or the one that no other was spared, and never for less than `suspect_after_ms`;
- one that is still starting (a node there loads its state) is given longer;
- one that was suspected is given twice as long the next time, until it has been well for a
  while.

A process that is killed on any machine that still runs is noticed by its connection, not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

HEARTBEAT_MS = 100.0
# Of silence, where heartbeats come as they should: ten of them missed.
SUSPECT_AFTER_MS = 1_000.0
_STARTING_MS = 30_000.0
# Three gaps as long as the longest, but of very long ones no more than this; yet always more than
# what was seen to pass.
_GAPS = 3.0
_LONG_MS = 10_000.0
_MORE_THAN_SEEN = 1.5
_LONGEST_MS = 60_000.0
_WELL_AGAIN_MS = 60_000.0
# The gap that is assumed of a server that is new, and for how long gaps are remembered.
_FIRST_GAP_MS = 700.0
_REMEMBERED_MS = 60_000.0


@dataclass(slots=True)
class _Longest:
    """The longest gap of the last one to two spans of `_REMEMBERED_MS`."""

    begun_ms: float
    now: float = 0.0
    before: float = _FIRST_GAP_MS

    def note(self, gap_ms: float, at_ms: float) -> None:
        if at_ms - self.begun_ms > _REMEMBERED_MS:
            self.begun_ms, self.before, self.now = at_ms, self.now, 0.0
        self.now = max(self.now, gap_ms)

    @property
    def gap_ms(self) -> float:
        return max(self.now, self.before)


@dataclass(slots=True)
class _Signs:
    server: str
    heard_ms: float
    starting: bool = True


@dataclass(slots=True)
class _Suspicions:
    count: int = 0
    last_ms: float = float("-inf")


@dataclass(slots=True)
class _Listening:
    """A clock that runs only while somebody looks: at most a heartbeat from look to look."""

    most_ms: float
    looked_ms: float | None = None
    listened_ms: float = field(default=0.0)

    def at(self, now_ms: float) -> float:
        if self.looked_ms is None:
            return self.listened_ms
        return self.listened_ms + min(max(now_ms - self.looked_ms, 0.0), self.most_ms)

    def look(self, now_ms: float) -> float:
        self.listened_ms = self.at(now_ms)
        self.looked_ms = now_ms
        return self.listened_ms


class FailureDetector:
    """Last signs of life, by connection."""

    def __init__(self, suspect_after_ms: float = SUSPECT_AFTER_MS) -> None:
        self.suspect_after_ms = suspect_after_ms
        self._clock = _Listening(HEARTBEAT_MS)
        self._signs: dict[int, _Signs] = {}
        self._gaps: dict[str, _Longest] = {}
        self._suspicions: dict[str, _Suspicions] = {}

    @property
    def listened_ms(self) -> float:
        """For how long somebody has listened so far."""
        return self._clock.listened_ms

    def started(self, connection: int, server: str, now_ms: float) -> None:
        """It has come, or registers one more node; it is heard of when that is loaded."""
        self._signs[connection] = _Signs(server, self._clock.at(now_ms))

    def begins(self, connection: int) -> None:
        """One of its nodes is to run here, which only stood by: it is loaded first."""
        self._signs[connection].starting = True

    def heard(self, connection: int, now_ms: float, *, starting: bool = False) -> None:
        """A heartbeat of any of its nodes; `starting`: one of them has not begun yet."""
        signs = self._signs.get(connection)
        if signs is None:
            return
        at_ms = self._clock.at(now_ms)
        gaps = self._gaps.setdefault(signs.server, _Longest(at_ms))
        if not signs.starting:
            gaps.note(at_ms - signs.heard_ms, at_ms)
        signs.heard_ms, signs.starting = at_ms, starting
        suspicions = self._suspicions.get(signs.server)
        if suspicions is not None and at_ms - suspicions.last_ms > _WELL_AGAIN_MS:
            del self._suspicions[signs.server]

    def forget(self, connection: int) -> None:
        """Its end is known."""
        self._signs.pop(connection, None)

    def patience_ms(self, server: str) -> float:
        """How long this one may be silent."""
        everyone = (self._gap_ms(each.server) for each in self._signs.values() if not each.starting)
        gap = max(self._gap_ms(server), _least(everyone))
        usual = max(self.suspect_after_ms, _MORE_THAN_SEEN * gap, min(_GAPS * gap, _LONG_MS))
        return self._after_suspicions(server, usual, _LONGEST_MS)

    def _gap_ms(self, server: str) -> float:
        gaps = self._gaps.get(server)
        return _FIRST_GAP_MS if gaps is None else gaps.gap_ms

    def _after_suspicions(self, server: str, usual_ms: float, most_ms: float) -> float:
        count = self._suspicions.get(server, _Suspicions()).count
        return min(usual_ms * 2.0**count, max(most_ms, usual_ms))

    def silent(self, now_ms: float) -> list[int]:
        """Connections that have been silent for too long, while somebody listened."""
        at_ms = self._clock.look(now_ms)
        return [number for number, signs in self._signs.items() if self._suspect(signs, at_ms)]

    def _suspect(self, signs: _Signs, at_ms: float) -> bool:
        if signs.starting:
            patience = self._after_suspicions(signs.server, _STARTING_MS, 10 * _STARTING_MS)
        else:
            patience = self.patience_ms(signs.server)
        if at_ms - signs.heard_ms <= patience:
            return False
        suspicions = self._suspicions.setdefault(signs.server, _Suspicions())
        suspicions.count += 1
        suspicions.last_ms = at_ms
        return True


def _least(gaps: Iterable[float]) -> float:
    """What no server was spared is the machine's doing."""
    return min(gaps, default=0.0)
