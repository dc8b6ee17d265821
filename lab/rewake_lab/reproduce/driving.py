"""What the experiments on operators share: the item stream, a sink process, an operator with a log.

The papers have a source, an operator and a sink on three machines.  Here the source's tuples are
made before the clock starts, the operator and its log run in this process, and the sink is a
process of its own at the other end of a socket.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from rewake.connectors.item_stream import SCHEMA, ItemStream
from rewake.log.frame import TurnRecord
from rewake.log.writing.pipeline import Mode
from rewake.model.errors import OperatingFault
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.stateful import StatefulOperator
from rewake.operators.windows.specs import CountWindow, TimeWindow, count_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy
from rewake.stores import LogWriter, create_log, open_log_writer

# How many tuples Borealis puts into a stream event (Thesis 3.3.2).
PAPER_EVENT = 184

# What waits for a log arrives in bursts and the rest one by one; without blocks the number of times
# the sink is woken would be measured, and a log would look faster than none.
_BLOCK_BYTES = 64 << 10

_READ_ALL = """\
import sys
print("ready", flush=True)
total = 0
while data := sys.stdin.buffer.raw.read(1 << 20):
    total += len(data)
print(total, flush=True)
"""


class Downstream(Protocol):
    """Whoever gets what an operator emits."""

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; waits while the other end is behind."""


class Sink:
    """A process that reads what it is sent, and at the end says how many bytes that was."""

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair()
        self._gathered = bytearray()
        with theirs:
            command = [sys.executable, "-I", "-S", "-c", _READ_ALL]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.PIPE)
        self._line()  # the start of a process is no part of what is measured
        return self

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, gathered to a block first; waits while the sink is behind."""
        self._gathered += data
        if len(self._gathered) >= _BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._gathered)
        self._gathered.clear()

    def finish(self) -> int:
        """Wait until the sink has everything; the bytes it got."""
        self._flush()
        self._socket.shutdown(socket.SHUT_WR)
        return self.received()

    @property
    def socket(self) -> socket.socket:
        """What leads to the sink, for another process that sends instead of this one."""
        return self._socket

    def received(self) -> int:
        """Wait until whoever sends has shut the socket down; the bytes that the sink got."""
        return int(self._line())

    def _line(self) -> bytes:
        assert self._process.stdout is not None, "the sink's answers are read from a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise OperatingFault(f"the sink's process ended early, with {self._process.wait()}")
        return line

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def averages(window: CountWindow | TimeWindow | int = 10) -> Aggregate:
    """The papers' operator: the average price of each item over a window, mostly of a count."""
    window = count_window(window) if isinstance(window, int) else window
    time_column = "item_time" if isinstance(window, TimeWindow) else None
    spec = AggregateSpec(["item_id"], window, [Avg("item_price")], time=time_column)
    return Aggregate(spec, SCHEMA)


def made_batches(stream: ItemStream, event_tuples: int, tuples: int) -> list[pa.RecordBatch]:
    """Stream events made before the clock starts."""
    starts = range(0, tuples, event_tuples)
    return [stream.batch(start, start + event_tuples) for start in starts]


class Logged:
    """The operator under CEC with a log; what it emits is forwarded once it is complete there."""

    def __init__(
        self,
        folder: Path,
        operator: StatefulOperator,
        policy: CheckpointPolicy,
        sink: Downstream | None = None,
        mode: Mode = Mode.STABLE,
        stripes: int = 1,
    ) -> None:
        self.folder = folder
        self.cec = ContinuousEventualCheckpointing(operator, policy)
        paths = [folder / f"stripe-{number}" for number in range(stripes)]
        self.paths = [folder] if stripes == 1 else paths
        create_log(self.paths, folder.name)
        self.writer: LogWriter = open_log_writer(self.paths, mode=mode)
        self.tuples = self.opens = self.checks = 0
        self._sink = sink
        self._waiting: deque[tuple[int, TurnRecord]] = deque()

    def turn(self, event: StreamEvent, now_ms: float) -> TurnRecord | None:
        """One turn: process, append, forward what has become durable; what was appended."""
        turn = self.cec.turn(event, now_ms)
        if turn.record is None:
            return None
        self.tuples += turn.record.tuples
        self.checks += turn.checks
        self.opens += turn.record.records - turn.record.tuples - turn.checks
        sequence = self.writer.append(turn.record)
        if self._sink is not None:
            self._waiting.append((sequence, turn.record))
            self._forward()
        return turn.record

    def _forward(self) -> None:
        completed = self.writer.completed
        while self._waiting and self._waiting[0][0] < completed:
            assert self._sink is not None, "nobody to forward to"
            send_record(self._sink, self._waiting.popleft()[1])

    def flush(self) -> None:
        """Wait until all is durable, and forward it."""
        self.writer.flush()
        self._forward()

    def drain(self) -> None:
        """Wait until all is complete, which is less than durable in delayed mode; forward it."""
        if self._waiting:
            self.writer.wait(self._waiting[-1][0])
        self._forward()

    def close(self) -> None:
        """Make everything durable and release the log."""
        self.writer.close()


def send_record(sink: Downstream, record: TurnRecord) -> None:
    """Forward results and control tuples as they are."""
    for section in record.sections:
        sink.send(section.payload)


def uncached(folder: Path) -> None:
    """Let the system forget the files' content, as a machine that was restarted has."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Clock:
    """Seconds of the wall and of the processor since it was made."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """Wall time."""
        return time.perf_counter() - self._wall

    @property
    def processor_seconds(self) -> float:
        """Processor time of all threads of this process."""
        return time.process_time() - self._processor

    @property
    def processor_percent(self) -> float:
        """Processor time of all threads of this process, as a share of the wall time."""
        return 100 * self.processor_seconds / self.seconds


def events(batches: Sequence[pa.RecordBatch], position: int, turns: int) -> list[StreamEvent]:
    """So many stream events from `position` on; the batches are used again and again."""
    size = batches[0].num_rows
    first = position // size
    return [
        StreamEvent((first + turn) * size, batches[(first + turn) % len(batches)])
        for turn in range(turns)
    ]
