"""A node at a given pace: how long stream events stay in it, and the memory they take (Thesis 3.2).

Memory is looked at while the node waits, not computed from times: so that the model, which says
that one follows from the other, can be wrong.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from rewake.model.stream_event import StreamEvent
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake.stores import create_log, open_log_writer
from rewake_lab.reproduce.thesis.persistence import filter_operator

_LOOK_SECONDS = 0.0002


@dataclass(frozen=True, slots=True)
class Stay:
    """Averages of a run: events per second, seconds of each part, events in the node."""

    events_per_s: float
    process_s: float
    store_s: float
    events_inside: float


class _Watch:
    """The average, over time, of how many stream events are in the node."""

    def __init__(self) -> None:
        self._last = self.started = time.perf_counter()
        self._before = 0
        self._sum = 0.0

    def look(self, inside: int) -> float:
        """So many are inside from now on; the time."""
        now = time.perf_counter()
        self._sum += self._before * (now - self._last)
        self._last, self._before = now, inside
        return now

    @property
    def average(self) -> float:
        return self._sum / (self._last - self.started)


def stay(batch: pa.RecordBatch, events_per_s: float, events: int, folder: Path) -> Stay:
    """Send so many stream events through a filter with a stable log, at this pace."""
    create_log(folder, "paced")
    durable_at: list[tuple[int, float]] = []
    writer = open_log_writer(
        folder, on_durable=lambda through: durable_at.append((through, time.perf_counter()))
    )
    cec = ContinuousEventualCheckpointing(filter_operator(batch.schema), OpenOnly())
    begun, appended = np.zeros(events), np.zeros(events)
    with writer:
        watch = _Watch()
        for number in range(events):
            due = watch.started + number / events_per_s
            while watch.look(number - writer.completed) < due:
                time.sleep(_LOOK_SECONDS)
            begun[number] = watch.look(number + 1 - writer.completed)
            record = cec.turn(StreamEvent(number * batch.num_rows, batch)).record
            assert record is not None, "the filter lets every tuple pass"
            writer.append(record)
            appended[number] = watch.look(number + 1 - writer.completed)
        average, seconds = watch.average, time.perf_counter() - watch.started
        writer.flush()
    shutil.rmtree(folder)
    throughs, times = (np.array(each) for each in zip(*durable_at, strict=True))
    durable = times[np.searchsorted(throughs, np.arange(1, events + 1))]
    return Stay(
        events / seconds,
        float((appended - begun).mean()),
        float((durable - appended).mean()),
        average,
    )
