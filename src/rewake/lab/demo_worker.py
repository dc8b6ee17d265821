"""The process that the demo kills: one aggregate under CEC, from the item stream into a log.

Run as `python -m rewake.lab.demo_worker SETTINGS`, with `WorkerSettings` as JSON.  On stdout it
says how far it is, one JSON object per line, each with an `event`: ready, recovered, durable,
waiting (for input), done.  A `durable` line is the demo's forwarding: it is written only after the
frames it speaks of are on disk (persist before forward).

What always holds: it recovers whatever log it finds before it takes new input, so the first start
and every later one are the same code.  It ends when its stdin does: no parent, no worker.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rewake.connectors.item_stream import SCHEMA, ItemStream
from rewake.log.frame import Frame
from rewake.log.host import DirectWriter
from rewake.log.log import Log
from rewake.log.memory import MemoryStore
from rewake.operators.aggregate import Aggregate, AggregateSpec
from rewake.operators.functions import Avg, Last
from rewake.operators.windows import count_window
from rewake.recovery.continuous_eventual_checkpointing import ContinuousEventualCheckpointing
from rewake.recovery.policies.targets import Targets
from rewake.stores import open_log_reader, open_log_writer

EVENT_TUPLES = 10_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker computes and how far its input reaches.

    Input at positions below `available` is there; the rest, up to `tuples`, has not come yet.
    """

    log: str
    seed: int
    items: int
    window: int
    tuples: int
    available: int

    def stream(self) -> ItemStream:
        """The input; a tenth of the items is slow."""
        return ItemStream(self.seed, self.items, self.items // 10)

    def spec(self) -> AggregateSpec:
        """The papers' query: the average price per item over a count window."""
        return AggregateSpec(
            by=["item_id"],
            window=count_window(self.window),
            aggregates=[Avg("item_price", "average"), Last("item_time", "closed_at")],
            time="item_time",
        )

    def approach(self, frames: Iterable[Frame]) -> ContinuousEventualCheckpointing:
        """The operator under CEC, recovered from these frames, newest first."""
        # Q is twice the windows that can be open (CEC IV.B: CHECKs become rare from there on); U
        # is the input of a few stream events.  The budget allows 4,000 CHECKs every 10 ms.
        policy = Targets(
            records=2 * self.items, tuples=5 * EVENT_TUPLES, interval_ms=2, period_ms=10
        )
        return ContinuousEventualCheckpointing.recover(
            Aggregate(self.spec(), SCHEMA), policy, frames
        )

    def to_json(self) -> str:
        """As a worker's argument."""
        return json.dumps(asdict(self))


def warm_up(settings: WorkerSettings) -> None:
    """Have every kernel compiled, or loaded, before anything is measured: run, and recover."""
    store = MemoryStore()
    Log.create(store, "warm-up", log_id=1)
    writer = DirectWriter(store)
    stream = settings.stream()
    for _ in range(2):
        approach = settings.approach(Log.open_reader(store).frames_backwards())
        for _ in range(8):
            stop = approach.position + EVENT_TUPLES
            turn = approach.turn(stream.event(approach.position, stop), now_ms=float(stop))
            if turn.record is not None:
                writer.append(turn.record)


class Newest:
    """Frames on their way to recovery, with what is worth telling about them."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self.frames = 0
        self.bytes = 0
        self.time = -1
        self._source = frames

    def __iter__(self) -> Iterator[Frame]:
        for frame in self._source:
            self.time = max(self.time, frame.t_end)
            self.frames += 1
            self.bytes += frame.length
            yield frame


class Worker:
    """One life of the worker: recover, then stream."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stream = settings.stream()
        self._live_since = 0.0
        # By frame since this start: the input position behind its turn.
        self._ends: list[int] = []
        self._checks = 0

    def run(self) -> None:
        """Recover, stream everything that is available, and close the log."""
        opened = time.perf_counter()
        with open_log_writer(self._settings.log, on_durable=self._forward) as self._writer:
            with open_log_reader(self._settings.log) as reader:
                self._recover(opened, Newest(reader.frames_backwards()))
            self._live_since = time.perf_counter()
            while self._approach.position < self._settings.available:
                self._turn()
            self._writer.flush()
            if self._settings.available < self._settings.tuples:
                # Also for a parent that waits for a frame where no turn had anything to record.
                say("waiting", position=self._approach.position)
                threading.Event().wait()
        say("done", seconds=time.perf_counter() - self._live_since, checks=self._checks)

    def _recover(self, opened: float, frames: Newest) -> None:
        reading = time.perf_counter()
        self._approach = self._settings.approach(frames)
        extent = self._approach.extent()
        loaded = {
            "windows": extent.open_windows,
            "extent_records": extent.records,
            "extent_frames": frames.frames,
            "extent_bytes": frames.bytes,
            "from_position": self._approach.position,
            "tuples_replayed": max(0, frames.time + 1 - self._approach.position),
        }
        replaying = time.perf_counter()
        while self._approach.recovering:
            self._turn(through=frames.time + 1)
        ended = time.perf_counter()
        say(
            "recovered",
            open_ms=(reading - opened) * 1000,
            load_ms=(replaying - reading) * 1000,
            replay_ms=(ended - replaying) * 1000,
            epoch=self._writer.epoch,
            **loaded,
        )

    def _turn(self, through: int | None = None) -> None:
        """The next stream event; stream events end at multiples of their size, as before."""
        start = self._approach.position
        stop = start + EVENT_TUPLES - start % EVENT_TUPLES
        stop = min(stop, self._settings.available, through or stop)
        turn = self._approach.turn(self._stream.event(start, stop), time.monotonic() * 1000)
        if turn.record is not None:
            self._checks += turn.checks
            # Before the append: the frame may be durable before `append` returns.
            self._ends.append(self._approach.position)
            self._writer.append(turn.record)

    def _forward(self, through: int) -> None:
        """Everything below `through` is durable, so it may be seen outside."""
        position = self._ends[through - self._writer.recovered - 1]
        say(
            "durable",
            frames=through,
            position=position,
            seconds=time.perf_counter() - self._live_since,
        )


def say(event: str, **facts: Any) -> None:
    """Tell the parent, in one write, so that lines of two threads never mix."""
    os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """Start: watch the parent first, then get ready, then work."""
    threading.Thread(target=_end_with_stdin, name="parent-watch", daemon=True).start()
    settings = WorkerSettings(**json.loads(sys.argv[1]))
    warm_up(settings)
    say("ready")
    Worker(settings).run()


if __name__ == "__main__":
    main()
