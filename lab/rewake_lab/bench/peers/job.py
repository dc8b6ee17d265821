"""What a contender is asked to do: the words that are on its command line.

What always holds: the stream is `ItemStream(seed, ids)`; but event time may run faster, with a
tuple every `interval_us` (a whole part of ten seconds, 10 or more), so that windows of ten seconds
close often enough for the slow.  With a rate, tuple number p is due `p / rate` seconds after the
moment in the file `gun`, in every life of the program; without one, tuples come as fast as they are
taken.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

from rewake.model.errors import UsageError

WINDOW_TUPLES: Final = 10
WINDOW_US: Final = 10_000_000
# Of the item stream.
FIRST_US: Final = 1_700_000_000_000_000
USUAL_INTERVAL_US: Final = 10


class Workload(StrEnum):
    """What is computed per item."""

    COUNT = "count"
    RUNNING = "running"
    TIME = "time"

    @property
    def label(self) -> str:
        """For people."""
        return _TITLES[self]


_TITLES: Final = {
    Workload.COUNT: "count-10 average",
    Workload.RUNNING: "running average",
    Workload.TIME: "10-second windows",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a contender; items below `watched` are those whose results it tells."""

    workload: Workload
    folder: Path
    ids: int = 100_000
    watched: int = 1_000
    seed: int = 1
    rate: float = 0.0
    interval_us: int = USUAL_INTERVAL_US
    batch_rows: int = 1_000_000

    @property
    def gun(self) -> Path:
        """The file that says when the first tuple is due, in milliseconds of wall-clock time."""
        return self.folder / "first-tuple-due-ms"

    @property
    def state(self) -> Path:
        """The folder of all that is written for fault tolerance, and of nothing else."""
        return self.folder / "state"

    def words(self) -> list[str]:
        """For the command line."""
        return [f"{each.name}={getattr(self, each.name)}" for each in fields(self)]

    @classmethod
    def of(cls, words: list[str]) -> Job:
        """What `words` said."""
        said = dict(word.split("=", 1) for word in words)
        try:
            return cls(
                workload=Workload(said["workload"]),
                folder=Path(said["folder"]),
                ids=int(said["ids"]),
                watched=int(said["watched"]),
                seed=int(said["seed"]),
                rate=float(said["rate"]),
                interval_us=int(said["interval_us"]),
                batch_rows=int(said["batch_rows"]),
            )
        except KeyError as missing:
            raise UsageError(f"a contender's command line lacks {missing}=...") from None

    def due_ms(self, position: float, origin_ms: float) -> float:
        """When that tuple is due; `origin_ms` is what the gun said."""
        return origin_ms + position * 1e3 / self.rate
