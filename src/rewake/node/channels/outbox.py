"""A producer's end: what it has sent and does not know to be durable.

The same class serves the real client and the simulator's.  Its host connects and sends `hello`,
hands over what the entry answers, and sends what `unsent` gives, in order; after a lost connection
it does so again.

What always holds: `acknowledged` only rises, and covers nothing but what this producer was told
itself.  A superseded producer sends nothing more: what it has not been told is durable may or may
not be, and who took over its name knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from numbers import Integral

import pyarrow as pa

from rewake.model.errors import (
    OperatingFault,
    ProducerSuperseded,
    SchemaMismatch,
    UsageError,
)
from rewake.model.names import checked_name
from rewake.model.schemas import difference
from rewake.model.stream_event import TIME_LIMIT, StreamEvent
from rewake.node.channels.packets import packet_of
from rewake.node.channels.producers import Known
from rewake.node.messages import Ack, Begins, Packet, Produce, Refused


class Outbox:
    """What one producer has still to answer for."""

    def __init__(self, entry: str, name: str, schema: pa.Schema | None = None) -> None:
        self.entry = entry
        # The entry's columns, where they are known.
        self._schema = schema
        self.name = checked_name(name)
        self.position = 0
        self.acknowledged = 0
        self.ended = False
        # Whether the present connection was answered.
        self.begun = False
        self.bytes = 0
        self._epoch = 0
        self._packets: deque[Packet] = deque()
        # Of them: sent on this connection; and how many of it are durable.
        self._sent = 0
        self._safe = 0
        self._error: OperatingFault | None = None

    # --- what the producer does --------------------------------------------------------------

    def put(self, batch: pa.RecordBatch, watermark: int | None = None) -> None:
        """Tuples to send."""
        self.check()
        if self.ended:
            raise UsageError(f"producer {self.name!r} has ended: it can send no more tuples")
        self._check_columns(batch)
        self._check_watermark(watermark)
        self._put(packet_of(StreamEvent(self.position, batch, watermark)))

    def _check_columns(self, batch: pa.RecordBatch) -> None:
        """What is sent is bytes, which the entry reads by its own columns."""
        if not isinstance(batch, pa.RecordBatch):
            raise UsageError(
                f"producer {self.name!r} sends record batches of pyarrow, not "
                f"{type(batch).__name__}; a table has to_batches(), rows are made one by "
                "pa.RecordBatch.from_pylist(rows, schema=...)"
            )
        mine, theirs = "what is sent", f"entry {self.entry!r}"
        wrong = self._schema and difference(batch.schema, self._schema, mine, theirs)
        if wrong:
            raise SchemaMismatch(f"producer {self.name!r}: {wrong}; cast it to the entry's columns")

    def _check_watermark(self, watermark: int | None) -> None:
        """A time that clocks can show; what lies beyond stands for the end of a stream."""
        given: object = watermark  # by callers whose types nobody checks
        if watermark is None:
            return
        if isinstance(given, bool) or not isinstance(given, Integral):
            raise UsageError(
                f"producer {self.name!r}: a watermark is a whole number in the unit of the time "
                f"column, not {watermark!r}; of a timestamp column, cast it to int64"
            )
        if not -TIME_LIMIT < watermark < TIME_LIMIT:
            raise UsageError(
                f"producer {self.name!r}: a watermark of {watermark} is no time, for those are "
                "between -2**62 and 2**62; check the unit, or call end() if nothing follows"
            )

    def end(self) -> None:
        """Nothing follows, for ever."""
        self.check()
        if not self.ended:
            self.ended = True
            self._put(Packet(self.position, self.position, final=True))

    def _put(self, packet: Packet) -> None:
        self._packets.append(packet)
        self.bytes += packet.size
        self.position = packet.end

    @property
    def empty(self) -> bool:
        """Whether everything is durable."""
        return not self._packets

    def check(self) -> None:
        """Raise what the entry has refused this producer for."""
        if self._error is not None:
            raise self._error

    # --- connections -------------------------------------------------------------------------

    def hello(self, node: str) -> Produce:
        """The first word on a connection."""
        self.begun = False
        return Produce(node, self.entry, self.name, self._epoch, self.acknowledged)

    def began(self, message: Begins) -> None:
        """The entry says how far it has got from this producer, durably."""
        if not self._epoch:
            # Who had the name before has come so far.
            self.position = message.position
        self.begun, self._epoch = True, message.epoch
        self.acknowledged = max(self.acknowledged, message.position)
        # A watermark or the end stands at a position without covering it: it is sent again.
        while self._packets and self._packets[0].start < message.position:
            self._drop()
        self._sent = self._safe = 0

    def acked(self, ack: Ack) -> None:
        """So many packets of this connection are durable."""
        self.acknowledged = max(self.acknowledged, ack.needed)
        while self._safe < ack.consumed and self._sent:
            self._drop()
            self._safe += 1
            self._sent -= 1

    def refused(self, message: Refused) -> None:
        """The entry wants nothing of this producer."""
        if message.fenced:
            self._superseded(message.reason)
        else:
            self._error = OperatingFault(f"the entry {self.entry!r} refused: {message.reason}")

    def in_log(self, known: Mapping[str, Known]) -> None:
        """Nobody answers, but the entry's log was read, and knows these producers: it is durable.

        The end of an earlier life under this name answers for no tuple that came after it.
        """
        mine = known.get(self.name, Known())
        if mine.epoch > self._epoch:
            self._superseded(f"its epoch {self._epoch} was superseded by {mine.epoch}")
        elif mine.epoch == self._epoch:
            self.acknowledged = max(self.acknowledged, mine.position)
            while self._packets and (
                self._packets[0].start < mine.position
                or (mine.ended and self._packets[0].end <= mine.position)
            ):
                self._drop()

    def over(self, known: Mapping[str, Known]) -> None:
        """The same when the query is over: what is not there now will not be confirmed."""
        self.in_log(known)
        if self._packets and self._error is None:
            self._error = OperatingFault(
                f"the query is over, and nobody confirms what producer {self.name!r} sent from "
                f"position {self.acknowledged} on; run it again, and a producer of this name "
                "goes on behind what is durable"
            )

    def _superseded(self, reason: str) -> None:
        self._error = ProducerSuperseded(
            f"producer {self.name!r} of entry {self.entry!r} cannot go on: {reason}. "
            f"Its tuples before position {self.acknowledged} are durable; who took over the "
            "name knows of the others. Producers that write at once need names of their own"
        )

    def _drop(self) -> None:
        self.bytes -= self._packets.popleft().size

    def unsent(self) -> list[Packet]:
        """What is to be sent on this connection now; taken as sent."""
        if not self.begun or self._error is not None:
            return []
        packets = [self._packets[each] for each in range(self._sent, len(self._packets))]
        self._sent = len(self._packets)
        return packets
