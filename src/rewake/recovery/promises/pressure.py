"""Whether the machine gives its processes less than it used to, and how much longer things take.

What recoveries cost was learnt while the machine was as it usually is.  When its host takes more of
its time, when more threads wait for its processors, or when files that were just read are gone from
its memory, a recovery takes longer than any of those before it: that is said before one is needed.

Pure: a host tells what the system counts (`rewake.net.nodes.pressure`), about ten times a second.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Counted", "Pressure"]

# What the latest look counts: of what is now (about a second), and of what is usual (minutes).
_NOW: Final = 1 / 8
_USUAL: Final = 1 / 1024
# Pages that were in memory a moment ago and are read again: from so many on, files are not there.
_CACHE_GONE_MB_S: Final = 32.0
_READ_AGAIN: Final = 1.5
# What is told is never more than this many times what is usual.
_MOST: Final = 4.0
# Below this a machine is as it always was.
_NOTICED: Final = 1.2


class Counted(NamedTuple):
    """What a system has counted up to a moment, in ms: ticks in all, of them taken by the host.

    And pages that were read again, in MB, and the threads that want a processor just now, for each
    processor that there is.
    """

    at_ms: float
    ticks: int = 0
    taken: int = 0
    read_again_mb: float = 0.0
    threads: float = 0.0


class Pressure:
    """What has been counted so far; without anything, there is none."""

    def __init__(self) -> None:
        self._last: Counted | None = None
        self._taken = 0.0
        self._threads = 0.0
        self._read_again = 0.0
        # What is usual is the mean of the first looks, then moves slowly: a single first look would
        # count as usual for minutes, whatever it happened to see.
        self._usual = 0.0
        self._looks = 0
        # How many times as long as usual a recovery takes now: at least once.
        self.factor = 1.0

    def look(self, counted: Counted) -> None:
        """The system has counted so much by now."""
        last, self._last = self._last, counted
        if last is None or counted.at_ms <= last.at_ms:
            self._threads = counted.threads
            return
        taken = (counted.taken - last.taken) / max(counted.ticks - last.ticks, 1)
        again = (counted.read_again_mb - last.read_again_mb) / (counted.at_ms - last.at_ms) * 1e3
        self._taken += (min(max(taken, 0.0), 0.9) - self._taken) * _NOW
        self._threads += (counted.threads - self._threads) * _NOW
        self._read_again += (max(again, 0.0) - self._read_again) * _NOW
        stretched = self._stretched()
        self._looks += 1
        self._usual += (stretched - self._usual) * max(_USUAL, 1 / self._looks)
        factor = stretched / self._usual * (_READ_AGAIN if self.cache_gone else 1.0)
        # What is hardly there is noise.
        self.factor = min(factor, _MOST) if factor >= _NOTICED else 1.0

    def _stretched(self) -> float:
        """How many times as long as on an idle machine work takes now."""
        return max(self._threads, 1.0) / (1 - self._taken)

    @property
    def cache_gone(self) -> bool:
        """Whether a log that is read again comes from the disk."""
        return self._read_again > _CACHE_GONE_MB_S

    @property
    def words(self) -> str:
        """What presses, for people; nothing when nothing does."""
        if self.factor <= 1.0:
            return ""
        found = []
        if self._taken >= 0.02:
            found.append(f"its host takes {self._taken:.0%} of its time")
        if self._threads > 1.0:
            found.append(f"{self._threads:.1f} threads want each processor")
        if self.cache_gone:
            found.append(f"{self._read_again:.0f} MB/s of files are read again from the disk")
        return f"this machine is under pressure ({', '.join(found) or 'it is slower than usual'})"
