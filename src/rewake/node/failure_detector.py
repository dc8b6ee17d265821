"""Who is alive: a lost connection is a death at once, silence after three missed heartbeats.

A detector that errs is harmless to the results: whoever was declared dead wrongly is superseded by
an attempt with a higher epoch, and everything it still says or writes is refused.  But it must not
err again and again, or a busy machine would never get anywhere.  So heartbeats are counted at the
pace at which they really come, which is slow on a busy machine; an attempt that is still starting
(it loads its state) is given longer; and a node that was suspected is given twice as long the next
time, until it has been well for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEAT_MS = 100.0
MISSED_HEARTBEATS = 3
_STARTING_MS = 30_000.0
_LONGEST_MS = 10_000.0
_WELL_AGAIN_MS = 60_000.0
# The pace that is assumed until it has been seen, and how fast a better one is believed.
_FIRST_PACE_MS = 700.0
_BELIEF = 0.05


@dataclass(slots=True)
class _Signs:
    node: str
    heard_ms: float
    starting: bool = True


@dataclass(slots=True)
class _Suspicions:
    count: int = 0
    last_ms: float = float("-inf")


class FailureDetector:
    """Last signs of life, by connection."""

    def __init__(self, heartbeat_ms: float = HEARTBEAT_MS, missed: int = MISSED_HEARTBEATS) -> None:
        self.timeout_ms = heartbeat_ms * missed
        self._missed = missed
        self._pace_ms = max(_FIRST_PACE_MS, heartbeat_ms)
        self._signs: dict[int, _Signs] = {}
        self._suspicions: dict[str, _Suspicions] = {}
        self._looked_ms = float("-inf")

    def started(self, connection: int, node: str, now_ms: float) -> None:
        """An attempt has come; its first heartbeat follows when it has loaded its state."""
        self._signs[connection] = _Signs(node, now_ms)

    def heard(self, connection: int, now_ms: float) -> None:
        """A heartbeat."""
        signs = self._signs.get(connection)
        if signs is not None:
            if not signs.starting:
                self._learn(now_ms - signs.heard_ms)
            signs.heard_ms, signs.starting = now_ms, False
            suspicions = self._suspicions.get(signs.node)
            if suspicions is not None and now_ms - suspicions.last_ms > _WELL_AGAIN_MS:
                del self._suspicions[signs.node]

    def _learn(self, gap_ms: float) -> None:
        """A longer gap is believed at once, a shorter one by and by."""
        self._pace_ms = max(gap_ms, self._pace_ms + _BELIEF * (gap_ms - self._pace_ms))

    def forget(self, connection: int) -> None:
        """Its end is known."""
        self._signs.pop(connection, None)

    def patience_ms(self, node: str) -> float:
        """How long this node may be silent."""
        suspicions = self._suspicions.get(node, _Suspicions())
        usual = max(self.timeout_ms, self._missed * self._pace_ms)
        return max(self.timeout_ms, min(usual * 2.0**suspicions.count, _LONGEST_MS))

    def silent(self, now_ms: float) -> list[int]:
        """Connections that have been silent for too long.

        If nobody looked for that long, it was this process that slept: everyone gets another
        chance, since what they sent meanwhile has not been read.
        """
        slept = now_ms - self._looked_ms > self.timeout_ms
        self._looked_ms = now_ms
        if slept:
            for signs in self._signs.values():
                signs.heard_ms = now_ms
            return []
        return [number for number, signs in self._signs.items() if self._suspect(signs, now_ms)]

    def _suspect(self, signs: _Signs, now_ms: float) -> bool:
        patience = _STARTING_MS if signs.starting else self.patience_ms(signs.node)
        if now_ms - signs.heard_ms <= patience:
            return False
        suspicions = self._suspicions.setdefault(signs.node, _Suspicions())
        suspicions.count += 1
        suspicions.last_ms = now_ms
        return True
