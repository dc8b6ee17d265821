"""A tiny vocabulary for the papers' sentences: an operator, what it is sent, what it leaves.

Tuples are letters: `send("aab")` is one turn with three tuples of keys a, a and b.  Windows are
count windows grouped by letter unless a test says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from rewake.log.frame import Frame, SectionKind, decode_frame, encode_frame
from rewake.log.results import result_batch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import CountWindow, TimeWindow, count_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing, Turn
from rewake.recovery.eventual.reading import construct, unpack_parts
from rewake.recovery.policies.policy import CheckpointPolicy, OpenOnly

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])


class Left(NamedTuple):
    """The footprints of a frame; windows by the position of the tuple that opened them."""

    opens: list[int]
    checks: list[int]
    closed: list[int]
    results: list[tuple[str, int]]
    n: int


def footprints(frame: Frame) -> Left:
    """What a turn has left in the log."""
    kinds = (SectionKind.OPENS, SectionKind.CHECKS, SectionKind.CLOSED)
    ids = [unpack_parts(frame.section(kind), frame.t_end)[0].tolist() for kind in kinds]
    batch = result_batch(frame, operator(count_window(1)).output_schema)
    rows = [] if batch is None else [(row["key"], row["sum"]) for row in batch.to_pylist()]
    return Left(*ids, rows, frame.open_windows)


def operator(window: CountWindow | TimeWindow) -> Aggregate:
    """Sums of the values, by letter."""
    time = "time" if isinstance(window, TimeWindow) else None
    spec = AggregateSpec(["key"], window, [Sum("value", "sum"), Count("", "n")], time=time)
    return Aggregate(spec, SCHEMA)


class Process:
    """An operator under CEC, with its log; tuple i of the stream has value i and time i."""

    def __init__(
        self,
        window: CountWindow | TimeWindow,
        policy: CheckpointPolicy | None = None,
        log: list[Frame] | None = None,
    ) -> None:
        self.window = window
        self.log = [] if log is None else log
        self.cec = ContinuousEventualCheckpointing.recover(
            operator(window), policy or OpenOnly(), reversed(self.log)
        )

    def send(self, keys: str, now_ms: float = 0.0, *, durable: bool = True) -> Left | None:
        """One turn; what it left in the log, or None if it left nothing."""
        turn = self.turn(keys, now_ms)
        if turn.record is None or not durable:
            return None
        encoded = encode_frame(
            turn.record, log_id=1, epoch=1, sequence=len(self.log), position=0, durable=0
        )
        self.log.append(decode_frame(encoded))
        return footprints(self.log[-1])

    def turn(self, keys: str, now_ms: float = 0.0) -> Turn:
        """One turn whose record is not written."""
        numbers = list(range(self.cec.position, self.cec.position + len(keys)))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(list(keys), pa.string()), *[pa.array(numbers, pa.int64())] * 2],
            schema=SCHEMA,
        )
        return self.cec.turn(StreamEvent(self.cec.position, batch), now_ms)

    def crash(self) -> Process:
        """The next process, with the same log; it has not been sent any input yet."""
        return Process(self.window, None, self.log)

    @property
    def checkpoint(self):  # type: ignore[no-untyped-def]
        """The eventual checkpoint that recovery would construct now."""
        return construct(reversed(self.log))
