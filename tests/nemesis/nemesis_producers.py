"""Producers that never give up, and remember what they were told is durable."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

import pyarrow as pa
from nemesis_driver import KEYS, SCHEMA

from rewake.model.errors import OperatingFault, RewakeError, UsageError
from rewake.net.clients.producer import Producer, produce


class AcknowledgedLost(AssertionError):
    """What was acknowledged to a producer is not there any more."""


def tuples(producer: int, first: int, stop: int) -> pa.RecordBatch:
    """What a producer sends at these positions: the same in every life."""
    numbers = range(first, stop)
    keys = [(producer * 7 + number * 13) % KEYS for number in numbers]
    columns = [[producer] * len(numbers), list(numbers), keys]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=SCHEMA)


class Stubborn:
    """Sends `total` tuples to an entry, a few at a time; when that fails, tries again."""

    def __init__(self, folder: Path, entry: str, number: int, total: int, seed: int) -> None:
        self._folder, self._entry = folder / "query", entry
        self._number, self._total = number, total
        self._random = Random(f"producer {number} of {seed}")
        self.acknowledged = 0
        self.allowed = 0
        self.done = False
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer-{number}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Until it has sent everything, or was told that it is over."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self.done and not self.over.is_set():
                self._live()
        except BaseException as error:
            self.error = error

    def _live(self) -> None:
        """One life: until all is sent and ended, or something fails."""
        try:
            with produce(self._folder, self._entry, name=f"producer-{self._number}") as out:
                if out.position < self.acknowledged:
                    raise AcknowledgedLost(
                        f"producer {self._number} had {self.acknowledged} acknowledged, and is to "
                        f"go on at {out.position}"
                    )
                self._send(out)
        except (RewakeError, OperatingFault, UsageError, OSError):
            time.sleep(0.05)

    def _send(self, out: Producer) -> None:
        while out.position < self._total and not self.over.is_set():
            stop = min(out.position + self._random.randint(1, 40), self.allowed, self._total)
            if stop > out.position:
                out.send(tuples(self._number, out.position, stop))
            if self._random.random() < 0.3 or stop == self.allowed:
                out.flush(2.0)
            self.acknowledged = max(self.acknowledged, out.acknowledged)
            time.sleep(0.002)
        if not self.over.is_set():
            out.end()
            out.flush(10.0)
            self.acknowledged = max(self.acknowledged, out.acknowledged)
            self.done = True
