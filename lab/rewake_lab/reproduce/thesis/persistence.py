"""What the experiments on persistence share: a filter, tuples of a given size, a log (Thesis 3.3).

The filter looks at an integer of each tuple and lets all of them pass, as in the thesis.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from rewake.log.frame import frame_parts
from rewake.log.writing.pipeline import Mode
from rewake.operators.expressions.expression import expression
from rewake.operators.stateless import FilterStep, StatelessOperator
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake_lab.reproduce.driving import Clock, Logged, Sink, events, send_record
from rewake_lab.reproduce.experiment import Row

BASELINE, CODE, DELAYED, STABLE = "no persistence", "path only", "delayed writes", "stable writes"
CONFIGURATIONS = (BASELINE, CODE, DELAYED, STABLE)
_KEY_BYTES = 4


def filter_operator(schema: pa.Schema) -> StatelessOperator:
    """A filter that inspects an integer and lets every tuple pass."""
    return StatelessOperator([FilterStep(expression("number >= 0"), "all")], schema)


def tuples_of(size: int, event_tuples: int, seed: int) -> pa.RecordBatch:
    """A stream event whose tuples have `size` bytes, of which four are the filter's."""
    random = np.random.default_rng(seed)
    rest = size - _KEY_BYTES
    numbers = pa.array(random.integers(0, 1000, event_tuples, np.int32))
    payload = pa.py_buffer(random.bytes(rest * event_tuples))
    filler = pa.Array.from_buffers(pa.binary(rest), event_tuples, [None, payload])
    return pa.record_batch([numbers, filler], names=["number", "filler"])


def cores_here() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _on_cores(count: int | None) -> Iterator[None]:
    """Run what follows, and the threads that it starts, on so many cores; None: on all."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def throughput(
    configuration: str,
    batch: pa.RecordBatch,
    turns: int,
    folder: Path,
    stripes: int = 1,
    cores: int | None = None,
) -> Row:
    """Bytes of tuples per second through the filter, on so many cores, to the sink on any."""
    with Sink() as sink, _on_cores(cores):
        seconds, percent = (
            _unlogged(configuration, batch, turns, sink)
            if configuration in (BASELINE, CODE)
            else _logged(configuration, batch, turns, sink, folder, stripes)
        )
    size = sum(column.nbytes for column in batch.columns) * turns
    return {
        "configuration": configuration,
        "seconds": seconds,
        "megabytes_per_s": size / seconds / 1e6,
        "processor_percent": percent,
    }


def _unlogged(
    configuration: str, batch: pa.RecordBatch, turns: int, sink: Sink
) -> tuple[float, float]:
    """Without a log; `path only` encodes and checksums frames, and drops them."""
    operator = filter_operator(batch.schema)
    cec = ContinuousEventualCheckpointing(operator, OpenOnly())
    stream = events([batch], 0, turns)
    clock = Clock()
    for number, event in enumerate(stream):
        if configuration == BASELINE:
            results = operator.process(event).results
            assert results is not None, "the filter lets every tuple pass"
            sink.send(memoryview(results.serialize()))
            continue
        record = cec.turn(event).record
        assert record is not None, "results leave a record"
        frame_parts(record, log_id=1, epoch=1, sequence=number, position=event.start, durable=0)
        send_record(sink, record)
    sink.finish()
    return clock.seconds, clock.processor_percent


def _logged(
    configuration: str,
    batch: pa.RecordBatch,
    turns: int,
    sink: Sink,
    folder: Path,
    stripes: int,
) -> tuple[float, float]:
    mode = Mode.STABLE if configuration == STABLE else Mode.DELAYED
    operator = filter_operator(batch.schema)
    logged = Logged(folder, operator, OpenOnly(), sink, mode, stripes)
    stream = events([batch], 0, turns)
    clock = Clock()
    for event in stream:
        logged.turn(event, 0.0)
    logged.drain()
    sink.finish()
    measured = clock.seconds, clock.processor_percent
    logged.close()
    shutil.rmtree(folder)
    return measured
