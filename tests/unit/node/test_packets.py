"""Stream events as packets and back: what a client sends may be anything."""

import struct

import pyarrow as pa
import pytest

from rewake.model.errors import BadPeer
from rewake.model.stream_event import StreamEvent
from rewake.node.channels.packets import event_of, packet_of

SCHEMA = pa.schema([("name", pa.string()), ("number", pa.int64())])


def batch_with(offsets: list[int], data: bytes = b"abcdef") -> pa.RecordBatch:
    """Two texts that begin and end where the offsets say."""
    buffers = [None, pa.py_buffer(struct.pack("<3i", *offsets)), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.string(), 2, buffers)
    return pa.RecordBatch.from_arrays([texts, pa.array([1, 2])], schema=SCHEMA)


@pytest.mark.parametrize(
    ("offsets", "data"),
    [
        ([0, 50_000_000, 6], b"abcdef"),
        ([0, -5_000, 6], b"abcdef"),
        ([0, 200_000, 6], b"abcdef"),
        ([0, 3, 6], b"\xff\xfe\xfdabc"),
    ],
    ids=["far beyond", "before", "beyond", "no text"],
)
def test_what_points_outside_of_itself_is_refused(offsets: list[int], data: bytes) -> None:
    """It would read memory of the node, or end it."""
    packet = packet_of(StreamEvent(0, batch_with(offsets, data)))
    with pytest.raises(BadPeer, match="holds no batch of the stream's columns"):
        event_of(packet, SCHEMA, from_client=True)


def test_what_is_whole_comes_back() -> None:
    """The same tuples at the same positions."""
    event = StreamEvent(7, batch_with([0, 3, 6]))
    again = event_of(packet_of(event), SCHEMA, from_client=True)
    assert again.batch.equals(event.batch)
    assert (again.start, again.end) == (7, 9)
