"""Stream events: batches of consecutive tuples, the unit of transport and storage (Thesis 3.1).

The tuples of a stream have rising positions; positions are the time of the recovery protocols.
Event time is a column.  A punctuation (watermark) says that no tuple with a smaller event time is
expected after this stream event; it takes effect after the event's last tuple.

A stream event covers the positions from `start` to `end`; its tuples are at the last of them.  The
positions before its tuples are those of tuples that went elsewhere: a filter keeps the positions of
its input, a shuffle those of the whole output.  That is what makes a position of a filter's output
mean something to the filter's source, without a table of which became which.

Invariant of every stream: stream events cover positions without gap or overlap, and their `end`s
are the same however often they are produced or read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

# The event-time clock of a stream that has none, or has not started: below every timestamp.
NO_TIME = -(2**63)
# Watermark of a stream that has ended: above every timestamp.
END_OF_TIME = 2**63 - 1
# Event times are below it, so durations can be added to them.  A clock that has come here is that
# of a stream that has ended.
TIME_LIMIT = 2**62
# A clock that goes by watermarks alone, and has heard none, is further behind its tuples than this:
# what it shows is no time, unless times are in nanoseconds (then this is the year 1933).
FIRST_TIME = -(2**60)
# The port by which the clock of the machine comes in: see `StreamEvent.tick`.
CLOCK_PORT = -1
# In place of a watermark: nothing has come for a while, and nobody need wait for this stream until
# its next tuple or watermark.  Operators never see it.
IDLE = 2**63 - 2


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Tuples at `position`, `position + 1`, ..., and perhaps a watermark behind them.

    Invariant: `0 <= start <= position`; the batch may be empty when the event only carries a
    watermark, or covers positions whose tuples went elsewhere.  `start` is `position` unless given.
    `port` says by which of an operator's inputs it came: 0 unless the operator has several, or it
    is a tick.
    """

    position: int
    batch: pa.RecordBatch
    watermark: int | None = None
    start: int = -1
    port: int = 0

    def __post_init__(self) -> None:
        if self.start < 0:
            object.__setattr__(self, "start", self.position)

    @classmethod
    def tick(cls, position: int, schema: pa.Schema, now_ms: int) -> StreamEvent:
        """The machine's clock as input: a position of its own, no tuple, the time as watermark."""
        return cls(position + 1, no_tuples(schema), now_ms, position, CLOCK_PORT)

    @property
    def end(self) -> int:
        """The position after the last tuple."""
        return self.position + int(self.batch.num_rows)

    def split(self, position: int) -> tuple[StreamEvent, StreamEvent]:
        """The part before `position` and the part from it on, which keeps the watermark.

        But the time of a tick is its position's: what is behind that has none.
        """
        if self.is_tick and position >= self.end:
            return self, replace(self, start=self.end, watermark=None)
        rows = max(position - self.position, 0)
        first = min(position, self.position)
        head = replace(self, position=first, batch=self.batch.slice(0, rows), watermark=None)
        tail = self.batch.slice(rows)
        return head, replace(self, position=self.end - tail.num_rows, batch=tail, start=position)

    @property
    def is_tick(self) -> bool:
        """Whether it is the machine's clock."""
        return self.port == CLOCK_PORT

    def without_watermark(self) -> StreamEvent:
        """The same tuples; a tick is nothing but its time, and stays as it is."""
        return self if self.is_tick or self.watermark is None else replace(self, watermark=None)

    def since(self, position: int) -> StreamEvent | None:
        """What of it is not before `position`; None when nothing is."""
        if self.end <= position:
            return None
        return self.split(position)[1] if self.start < position else self

    def holding(self, batch: pa.RecordBatch) -> StreamEvent:
        """The same stretch of the stream with other tuples, at most as many as it covers."""
        position = self.end - int(batch.num_rows)
        assert position >= self.start, "more tuples than positions: this step must log its output"
        return replace(self, position=position, batch=batch)


def told_by(clock: int, *, nanoseconds: bool = False) -> int | None:
    """The time that a clock shows; None when no time has been told, or the stream has ended.

    In nanoseconds a clock that waits for its first watermark looks like others, and counts as one.
    """
    waiting = clock == NO_TIME or (clock < FIRST_TIME and not nanoseconds)
    return None if waiting or clock >= TIME_LIMIT else clock


def no_tuples(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns without tuples."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
