"""Reading a log: from a place forwards, from the end backwards, and along with its writer.

Every frame is verified when it is read, and must be the next one by sequence; a frame that is
missing or damaged raises `DamagedLog`, never a shorter stream.  A reader sees the log as it was at
its last `refresh`; any number of them may read while a writer goes on.

`tail` is the catch-up from past to live: a cursor whose `poll` returns the frames that have become
complete since, each exactly once and in order, however many rotations or writers lie between.
When the log has gone back, what is read is the log as it is then; a cursor that had come further
raises `TakenBack`.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rewake.log.frame import Frame
from rewake.log.reading.cursor import BackwardCursor, Tail
from rewake.log.reading.scan import CHUNK_BYTES
from rewake.log.reading.seek import place_of
from rewake.log.reading.view import Viewer
from rewake.model.errors import UsageError

__all__ = ["LogReader", "Tail"]


class LogReader(Viewer):
    """A log as it was at the last `refresh`."""

    @property
    def first_sequence(self) -> int:
        """The sequence of the first frame that is retained."""
        return self.view.floor

    @property
    def end_position(self) -> int:
        """One more than the position of the last complete result tuple."""
        return self.view.frontier.position

    @property
    def end_timestamp(self) -> int:
        """The highest timestamp so far."""
        return self.view.frontier.timestamp

    def frames(
        self,
        *,
        from_sequence: int | None = None,
        from_position: int | None = None,
        from_timestamp: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[Frame]:
        """The frames from a place (by default the first retained) up to the end as now known."""
        cursor = self.tail(
            from_sequence=from_sequence,
            from_position=from_position,
            from_timestamp=from_timestamp,
            chunk_bytes=chunk_bytes,
        )
        end = self.end_sequence
        while cursor.sequence < end:
            frame = cursor.take()
            if frame is None:
                return
            yield frame

    def frames_backwards(
        self, *, before_sequence: int | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[Frame]:
        """The frames from the end (or from `before_sequence`) back to the first retained one."""
        cursor = BackwardCursor(self, chunk_bytes=chunk_bytes)
        while (frame := cursor.take()) is not None:
            if before_sequence is None or frame.sequence < before_sequence:
                yield frame

    def tail(
        self,
        *,
        from_sequence: int | None = None,
        from_position: int | None = None,
        from_timestamp: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Tail:
        """A cursor that goes on from past to live."""
        places = (from_sequence, from_position, from_timestamp)
        if sum(place is not None for place in places) > 1:
            raise UsageError("give one of from_sequence, from_position and from_timestamp")
        start = place_of(
            self, sequence=from_sequence, position=from_position, timestamp=from_timestamp
        )
        tail = Tail(self, start.sequence, chunk_bytes=chunk_bytes)
        while (frame := tail.peek()) is not None and start.before(frame):
            tail.take()
        return tail

    def owed(self, position: int, sequence: int) -> Tail:
        """For one who has come to `position`, and has looked at all frames below `sequence`.

        Frames that it knows may come first.  Raises OutOfRange when something that it is owed has
        been trimmed, however many frames it has looked at: what follows would leave a gap.
        """
        first = self.view.first_position
        if position < first:
            return self.tail(from_position=position)  # which says what is still there
        # What can be seen may lag behind what it was sent from memory.
        if sequence or position == first:
            after = min(max(sequence, self.first_sequence), self.end_sequence)
            return self.tail(from_sequence=after)
        # A watermark that stands alone at the position comes behind the tuple before it.
        return self.tail(from_position=min(position - 1, self.end_position))

    def close(self) -> None:
        """Release the stores; idempotent."""
        for store in self.stores:
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
