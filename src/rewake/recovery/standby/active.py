"""Active standby: a second process computes along (Hwang 3.3).

Every turn leaves a record, and what is relayed is its input instead of its output: the order in
which inputs met and what the clock showed are in it, so chance has decided once, for both.  The
place that stands by takes the same turns and keeps what they give until nobody can ask for it
again; promoted, it goes on with the next turn, without loading and without processing anything
again.  A place that comes new is told the whole state, between two turns.

What always holds: a place that stands by has computed what it says to hold.  Both sides look at
what came of each turn; where they differ the step is no function of its input, and the query ends
in words rather than with output that contradicts itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from rewake.log.frame import Frame, Section, SectionKind, TurnRecord
from rewake.log.results import result_sections
from rewake.model.batches import read_batch
from rewake.model.errors import BadPeer, UsageError
from rewake.model.stream_event import CLOCK_PORT, StreamEvent, no_tuples
from rewake.operators.columns.plain import encoded_as, plain_batch, plain_schema
from rewake.operators.row_digest import NO_ROWS, RowDigest, digest_of
from rewake.operators.stateful import Emissions, StatefulOperator
from rewake.recovery.approach import Emit, NewOperator, Recovery, Turn, register
from rewake.recovery.driven import LogSoFar, Standby
from rewake.recovery.instant.approach import Instant, InstantCheckpointing
from rewake.recovery.instant.reading import CheckpointMark
from rewake.recovery.standby.holding import HoldingPlace
from rewake.recovery.standby.relaying import HeldElsewhere, KeptRecord, Relaying
from rewake.recovery.standby.words import NOTHING_HELD, Message, Purpose, encoded

__all__ = ["ActiveStandby"]

# INPUT of a record: start, position, watermark, port, whether there is a watermark; the digest of
# what came of it; then the tuples, as one Arrow IPC record batch message, if there are any.
_INPUT: Final = Struct("<qqqii24s")
# Checkpoints are taken for a place that comes new, and never else.
_WHEN_ASKED: Final = Instant(every_tuples=1 << 62)


@register
@dataclass(frozen=True)
class ActiveStandby(HeldElsewhere):
    """A second process computes along, and goes on at once."""

    name: ClassVar[str] = "active-standby"
    repeats_turns: ClassVar[bool] = True

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:
        """A new one; who is promoted resumes instead."""
        engine = InstantCheckpointing.recover(operator, _WHEN_ASKED, frames, emit)
        return _Leading(engine)

    def resume(self, alive: Recovery, frames: Iterable[Frame]) -> Recovery:
        """Go on with what was computed along, and its records."""
        assert isinstance(alive, InstantCheckpointing)
        return _Leading(alive, frames)

    def stand_by(self, make: NewOperator, emit: Emit) -> Standby:
        """Nothing is computed yet."""
        return _Following(make, emit)

    def late_tuples_in(self, frame: Frame) -> int:
        """How many tuples had come too late when this record was left."""
        return CheckpointMark.of(frame).late_tuples


class _Leading(Relaying):
    """Where the node runs: every turn leaves a record, and its input is relayed."""

    inner: InstantCheckpointing

    def __init__(self, engine: InstantCheckpointing, frames: Iterable[Frame] = ()) -> None:
        super().__init__(engine, frames)
        # What the record that is due is made from, and what came of it.
        self._taken: tuple[StreamEvent, RowDigest] | None = None

    @property
    def acknowledged(self) -> int:
        """The other place has the state after each turn that it has."""
        return self.position - 1

    @property
    def frames_needed(self) -> int:
        """The newest says how far each input was consumed."""
        return 1

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """As the inner one, but there is always a record."""
        turn = super().turn(event, now_ms)
        self._taken = event, _digest(turn.outputs)
        return turn if turn.record is not None else turn._replace(record=self.bare_record())

    def _as_kept(self, sequence: int, position: int, record: TurnRecord) -> KeptRecord:
        taken, self._taken = self._taken, None
        made_from = b"" if taken is None else _input_of(*taken)
        return KeptRecord(sequence, position, record, made_from)

    def _anew(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        held = (encoded(each.record, each.sequence, each.position) for each in kept)
        state = encoded(self.inner.whole(), self.next, self.output)
        return [(Purpose.HOLD, held), (Purpose.LOAD, [state])]

    def _more(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        return [(Purpose.TAKE, (_turn_of(each) for each in kept))]


class _Following(HoldingPlace):
    """The other place: takes the same turns, and holds what they gave."""

    def __init__(self, make: NewOperator, emit: Emit) -> None:
        super().__init__()
        self._make = make
        self._emit = emit
        self._engine: InstantCheckpointing | None = None

    def _told(self, message: Message) -> bool:
        """Hold, load or take this; what is only held is not enough to go on."""
        match message.purpose:
            case Purpose.HOLD:
                self.frames = deque(message.frames)
                self._engine, self.next = None, NOTHING_HELD
                return False
            case Purpose.LOAD:
                self._engine = InstantCheckpointing.recover(
                    self._make(), _WHEN_ASKED, message.frames, self._emit
                )
            case Purpose.TAKE:
                self._take(message)
        return True

    def _take(self, message: Message) -> None:
        if self._engine is None:
            raise BadPeer("who stands by was told of turns before it was told the state")
        for frame in message.frames:
            if frame.sequence >= self.next:
                self.frames.append(_taken(self._engine, frame))

    def past(self) -> LogSoFar:
        """It is promoted, and goes on with what it has computed."""
        return replace(super().past(), alive=self._engine)


# --- a turn's input, and what came of it ---------------------------------------------------------


def _digest(outputs: Emissions) -> RowDigest:
    """Of the tuples and of where each of them is."""
    found = NO_ROWS
    for _, batch in outputs:
        places = pa.array(np.arange(batch.num_rows))
        found = found.plus(digest_of(batch.append_column("", places)))
    return found


def _input_of(event: StreamEvent, gave: RowDigest) -> bytes:
    watermark = 0 if event.watermark is None else event.watermark
    told = int(event.watermark is not None)
    head = _INPUT.pack(event.start, event.position, watermark, event.port, told, gave.encode())
    plain = plain_batch(event.batch)
    return head + (plain.serialize().to_pybytes() if plain.num_rows else b"")


def _turn_of(kept: KeptRecord) -> bytes:
    """Its record with its input in place of its output."""
    sections = [each for each in kept.record.sections if each.kind != SectionKind.RESULTS]
    if kept.made_from:
        sections.append(Section(SectionKind.INPUT, kept.made_from))
    record = kept.record._replace(sections=tuple(sections))
    return encoded(record, kept.sequence, kept.position)


def _taken(engine: InstantCheckpointing, frame: Frame) -> Frame:
    """Take the turn that left this record; the record with its output."""
    payload = frame.section(SectionKind.INPUT)
    if payload is None:
        return frame
    event, gave = _event_in(payload, engine.operator.schemas, frame)
    turn = engine.turn(event)
    clock, windows = engine.operator.clock, engine.operator.open_parts
    if _digest(turn.outputs) != gave or (clock, windows) != (frame.timestamp, frame.open_windows):
        raise UsageError(
            f"the standby has computed something else from the same input (positions {event.start} "
            f"to {event.end}): the step is no function of its input, because it goes by chance, by "
            "what else happened in its process, or by the order of a set; choose a passive standby "
            "or an approach with a log for it"
        )
    others = [each for each in frame.sections if each.kind != SectionKind.INPUT]
    return frame._replace(sections=(*result_sections(turn.outputs), *others))


def _event_in(
    payload: memoryview, schemas: Sequence[pa.Schema], frame: Frame
) -> tuple[StreamEvent, RowDigest]:
    wrong = f"the input in record {frame.sequence} is none"
    if len(payload) < _INPUT.size:
        raise BadPeer(wrong)
    start, position, watermark, port, told, digest = _INPUT.unpack_from(payload)
    if not (0 <= start <= position and port in (CLOCK_PORT, *range(len(schemas)))):
        raise BadPeer(f"{wrong}: positions {start} to {position}, port {port}")
    schema, data = schemas[max(port, 0)], payload[_INPUT.size :]
    batch = _batch_in(data, schema, wrong) if len(data) else no_tuples(schema)
    time = watermark if told else None
    return StreamEvent(position, batch, time, start, port), RowDigest.decode(digest)


def _batch_in(data: memoryview, schema: pa.Schema, wrong: str) -> pa.RecordBatch:
    plain = read_batch(data, plain_schema(schema), wrong, BadPeer)
    columns = [
        encoded_as(column, each.type) for column, each in zip(plain.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
