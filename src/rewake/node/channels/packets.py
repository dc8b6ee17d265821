"""Stream events as packets and back; the bytes of the log are the bytes on the wire."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.batches import read_batch
from rewake.model.errors import BadPeer, DamagedFrame
from rewake.model.stream_event import StreamEvent, no_tuples
from rewake.node.messages import Packet


def packet_of(event: StreamEvent) -> Packet:
    """A stream event, ready to travel."""
    rows = event.batch.num_rows
    payload = event.batch.serialize() if rows else b""
    return Packet(event.start, event.end, rows, event.watermark, payload)


def event_of(packet: Packet, schema: pa.Schema, *, from_client: bool = False) -> StreamEvent:
    """What a packet holds; the columns refer to the packet's bytes.

    Raises BadPeer when the payload is not a batch of this schema with as many rows as it says.
    What nodes send was a batch once; what a client sends may be anything, so that every offset and
    every text in it is looked at: one that points elsewhere would read memory that is not its own.
    """
    if not packet.rows:
        return StreamEvent(packet.end, no_tuples(schema), packet.watermark, packet.start)
    wrong = f"the packet at positions {packet.start} to {packet.end} holds no batch of the stream's"
    wrong += f" columns ({', '.join(schema.names)})"
    batch = read_batch(packet.payload, schema, wrong, BadPeer, full=from_client)
    rows = batch.num_rows
    if packet.rows not in (-1, rows) or rows > packet.end - packet.start:
        raise BadPeer(
            f"the packet at positions {packet.start} to {packet.end} says {packet.rows} tuples "
            f"and holds {rows}"
        )
    return StreamEvent(packet.end - rows, batch, packet.watermark, packet.start)


def packet_in(frame: Frame, output: int) -> Packet | None:
    """What a frame of a fragment's log sends on an output; None when it sends nothing at all."""
    watermark = punctuation_in(frame)
    if not frame.tuples and watermark is None:
        return None
    end = frame.position + frame.tuples
    payload = frame.section(SectionKind.RESULTS, output)
    if payload is None:
        return Packet(frame.position, end, 0, watermark)
    return Packet(frame.position, end, -1, watermark, payload)


def punctuation_section(watermark: int) -> Section:
    """The watermark that takes effect after a turn, for its frame."""
    return Section(SectionKind.PUNCTUATIONS, pack_columns([np.array([watermark], np.int64)]))


def punctuation_in(frame: Frame) -> int | None:
    """The watermark that takes effect after a turn."""
    payload = frame.section(SectionKind.PUNCTUATIONS)
    if payload is None:
        return None
    columns = unpack_columns(payload)
    if len(columns) != 1 or columns[0].size != 1:
        raise DamagedFrame(f"frame {frame.sequence} has a punctuation of another form")
    return int(columns[0][0])
