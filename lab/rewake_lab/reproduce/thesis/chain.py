"""A chain of nodes, each a process with a filter and a log of its own (Thesis 3.3.2).

Blocks of tuples travel from process to process through sockets, the length before each.  A node
with a log forwards a block when it is complete there; one without at once.  The end of the stream
is the end of the connection.
"""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rewake.model.errors import OperatingFault
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.policies.policy import OpenOnly
from rewake_lab.reproduce.driving import Clock, Downstream, Logged, Sink
from rewake_lab.reproduce.experiment import Row
from rewake_lab.reproduce.thesis.gang import Gang, Together
from rewake_lab.reproduce.thesis.persistence import filter_operator, tuples_of

_LENGTH = struct.Struct("<q")


class _Blocks:
    """The way to the next node."""

    def __init__(self, downstream: socket.socket) -> None:
        self._downstream = downstream

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send a block with its length before it."""
        self._downstream.sendall(_LENGTH.pack(len(data)))
        self._downstream.sendall(data)


def chain_throughput(
    nodes: int, stripes: int, batch: pa.RecordBatch, turns: int, folder: Path
) -> Row:
    """Bytes of tuples per second through a chain; 0 stripes: without logs."""
    size = sum(column.nbytes for column in batch.columns)
    ways = [socket.socketpair() for _ in range(nodes)]
    with Sink() as sink, Gang() as gang:
        ends = [*(way[0] for way in ways[1:]), sink.socket]
        for number, (way, end) in enumerate(zip(ways, ends, strict=True)):
            log = str(folder / f"node-{number}")
            gang.start(run_node, way[1], end, size // batch.num_rows, log, stripes)
        source = ways[0][0]
        for way in ways:
            way[1].close()
        for end in ends[:-1]:
            end.close()
        gang.together()
        clock = Clock()
        _feed(source, batch, turns)
        sink.received()
        seconds = clock.seconds
    shutil.rmtree(folder, ignore_errors=True)
    rate = size * turns / seconds / 1e6
    return {"nodes": nodes, "stripes": stripes, "seconds": seconds, "megabytes_per_s": rate}


def _feed(source: socket.socket, batch: pa.RecordBatch, turns: int) -> None:
    blocks, payload = _Blocks(source), memoryview(batch.serialize())
    with source:
        try:
            for _ in range(turns):
                blocks.send(payload)
        except OSError as error:
            raise OperatingFault(f"the first node of the chain hung up ({error})") from error


# --- in a node's process -------------------------------------------------------------------------


def run_node(
    together: Together,
    upstream: socket.socket,
    downstream: socket.socket,
    tuple_bytes: int,
    folder: str,
    stripes: int,
) -> None:
    """One node of the chain, in a process: receive, process, keep, send on."""
    schema = tuples_of(tuple_bytes, 1, 0).schema
    operator, blocks = filter_operator(schema), _Blocks(downstream)
    with upstream, downstream:
        if stripes:
            logged = Logged(Path(folder), operator, OpenOnly(), blocks, stripes=stripes)
            together()
            for event in _events(upstream, schema):
                logged.turn(event, 0.0)
            logged.drain()
        else:
            together()
            _forward(operator, _events(upstream, schema), blocks)
        downstream.shutdown(socket.SHUT_WR)
    if stripes:
        logged.close()


def _forward(operator: StatefulOperator, events: Iterator[StreamEvent], blocks: Downstream) -> None:
    for event in events:
        results = operator.process(event).results
        assert results is not None, "the filter lets every tuple pass"
        blocks.send(memoryview(results.serialize()))


def _events(upstream: socket.socket, schema: pa.Schema) -> Iterator[StreamEvent]:
    head, position = np.empty(_LENGTH.size, np.uint8), 0
    while _filled(upstream, head):
        block = np.empty(_LENGTH.unpack(head.tobytes())[0], np.uint8)
        if not _filled(upstream, block):
            raise OperatingFault("the node before this one hung up in the middle of a block")
        event = StreamEvent(position, pa.ipc.read_record_batch(pa.py_buffer(block), schema))
        position = event.end
        yield event


def _filled(upstream: socket.socket, space: NDArray[np.uint8]) -> bool:
    """Read as many bytes as there is space for; False at the end of the stream."""
    rest = space.data
    while rest:
        got = upstream.recv_into(rest)
        if not got:
            return False
        rest = rest[got:]
    return True
