"""Stream events: batches of consecutive tuples, the unit of transport and storage (Thesis 3.1).

The tuples of a stream have positions 0, 1, 2, ...; positions are the time of the recovery
protocols.  Event time is a column.  A punctuation (watermark) says that no tuple with a smaller
event time is expected after this stream event; it takes effect after the event's last tuple.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

# The event-time clock of a stream that has none, or has not started: below every timestamp.
NO_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Tuples at `position`, `position + 1`, ..., and perhaps a watermark behind them.

    Invariant: `position >= 0`; the batch may be empty when the event only carries a watermark.
    """

    position: int
    batch: pa.RecordBatch
    watermark: int | None = None

    @property
    def end(self) -> int:
        """The position after the last tuple."""
        return self.position + int(self.batch.num_rows)

    def split(self, position: int) -> tuple[StreamEvent, StreamEvent]:
        """The part before `position` and the part from it on, which keeps the watermark."""
        rows = position - self.position
        head = StreamEvent(self.position, self.batch.slice(0, rows))
        return head, StreamEvent(position, self.batch.slice(rows), self.watermark)
