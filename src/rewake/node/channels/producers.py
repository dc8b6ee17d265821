"""The producers of an entry: who may write, where each goes on, and what a frame says of it.

A producer has a name, and positions of its own that count its tuples.  Whoever claims a name gets
an epoch, one higher than the last, and supersedes the one before.  What always holds:

- A claim, like a packet, takes a turn; the frame of a turn says of its producer: name, epoch, next
  position, watermark, whether it has ended.  So tuples and whose they are become durable together,
  and after a crash everyone goes on where the log ends for him.
- Nothing is answered before it is durable.  A claim waits behind all that its predecessor sent:
  what the answer says is there can neither be lost nor be followed by a packet of an old epoch.
- A producer's packets continue each other; anything else is refused.

The time of an entry is that of the producer furthest behind.  It ends when all have ended.

At most `MOST_PRODUCERS` names are known; none is ever forgotten, because its return could not be
told from a first time.  One frame in as many as there are names says all of them, the others say
who has changed: recovery reads back to the newest that says all.

A producers section: columns of characters and their number per name, epoch, position, watermark,
ended; then one number, 1 when these are all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.errors import BadPeer, DamagedFrame, DamagedLog, InvalidName
from rewake.model.names import MAX_NAME_LENGTH, checked_name
from rewake.model.stream_event import IDLE, NO_TIME, StreamEvent, no_tuples
from rewake.node.channels.furthest_behind import FurthestBehind
from rewake.node.channels.input_merge import InputMerge
from rewake.node.channels.packets import event_of
from rewake.node.commands import Answer, Confirm, Disconnect, NodeCommand
from rewake.node.messages import Ack, Begins, Packet, Produce, Refused

__all__ = [
    "MOST_PRODUCERS",
    "MOST_WINDOW_BYTES",
    "Known",
    "Note",
    "Producers",
    "producers_in",
    "producers_of",
]

MOST_PRODUCERS: Final = 1024
# What one producer may have sent that it was not told to be durable, before its next packet.
MOST_WINDOW_BYTES: Final = 64 << 20
# An entry has one channel, which all its producers share.
_CHANNEL: Final = 0


class Known(NamedTuple):
    """What a log says of a producer."""

    epoch: int = 0
    position: int = 0
    watermark: int = NO_TIME
    ended: bool = False


class Note(NamedTuple):
    """What a turn does for a producer, and who is to hear when that is durable."""

    name: str
    known: Known
    connection: int
    # How many packets came on the connection up to this one; 0: this is its claim.
    packets: int
    bytes: int


@dataclass(slots=True)
class _Line:
    """A producer's connection."""

    name: str
    begun: bool = False
    packets: int = 0
    unsafe_bytes: int = 0


class Producers:
    """All producers of one entry; hands what they send to the entry's channel."""

    def __init__(self, merge: InputMerge, schema: pa.Schema, *, logs: bool) -> None:
        self._merge = merge
        self._schema = schema
        self._logs = logs
        # What has arrived, and what frames say: the turns between them are in `_notes`.
        self._arrived: dict[str, Known] = {}
        self._behind = FurthestBehind(self._arrived)
        self._written: dict[str, Known] = {}
        self._notes: deque[Note | None] = deque()
        self._changed: set[str] = set()
        # How many of the newest frames it takes to know all; many: the next frame says all.
        self._frames = MOST_PRODUCERS
        self._lines: dict[int, _Line] = {}
        self._line_of: dict[str, int] = {}
        self._time = NO_TIME

    # --- arrivals ----------------------------------------------------------------------------

    def claimed(self, connection: int, message: Produce) -> list[NodeCommand]:
        """Somebody wants to write under a name; it hears where it begins once that is durable."""
        refusal = self._refusal(message)
        if refusal is not None:
            return [Answer(connection, refusal)]
        name, known = message.producer, self._arrived.get(message.producer, Known())
        epoch = message.epoch or known.epoch + 1
        if message.epoch > known.epoch:
            # There is no log, so what went before is lost: it goes on behind that.
            known = Known(epoch, message.position)
        commands = self._replaced(name, epoch)
        self._lines[connection] = _Line(name)
        self._line_of[name] = connection
        nothing = Packet(known.position, known.position)
        self._offer(connection, known._replace(epoch=epoch), nothing, no_tuples(self._schema))
        return commands

    def _refusal(self, message: Produce) -> Refused | None:
        name, epoch = message.producer, message.epoch
        try:
            checked_name(name)
        except InvalidName as error:
            return Refused(str(error)[:1000])
        known = self._arrived.get(name)
        if known is None and len(self._arrived) >= MOST_PRODUCERS:
            return Refused(
                f"the entry knows {MOST_PRODUCERS} producers, none of which it may forget; "
                f"{name!r} must write under the name of one of them"
            )
        if known is None and self._ended:
            return Refused(f"the entry has ended: all its producers have; {name!r} comes too late")
        known = known or Known()
        if epoch and epoch < known.epoch:
            return _superseded(name, epoch, known.epoch)
        if self._logs and (epoch > known.epoch or (epoch and message.position > known.position)):
            return Refused(
                f"producer {name!r} was told epoch {epoch} and that all before position "
                f"{message.position} is durable, but the entry's log knows epoch {known.epoch} and "
                f"position {known.position}: it is older than it was, or another; restore it"
            )
        return None

    def _replaced(self, name: str, epoch: int) -> list[NodeCommand]:
        """Of two connections under one name only the later one is heard."""
        earlier = self._line_of.pop(name, None)
        if earlier is None:
            return []
        del self._lines[earlier]
        known = self._arrived[name].epoch
        if known == epoch:
            return [Disconnect(earlier)]
        return [Answer(earlier, _superseded(name, known, epoch))]

    def arrived(self, connection: int, packet: Packet) -> list[NodeCommand]:
        """A producer sent something.  Raises BadPeer when that cannot be; nothing has changed."""
        line = self._lines.get(connection)
        if line is None or not line.begun:
            raise BadPeer("a producer sent tuples before it was told where it begins")
        known = self._arrived[line.name]
        self._check(line, known, packet)
        watermark = known.watermark
        if packet.watermark is not None:
            watermark = max(watermark, packet.watermark)
        fresh = Known(known.epoch, packet.end, watermark, known.ended or packet.final)
        # Now, not in its turn: what cannot be read is refused while one knows who sent it.
        batch = event_of(packet, self._schema, from_client=True).batch
        line.packets += 1
        line.unsafe_bytes += packet.size
        self._offer(connection, fresh, packet, batch)
        return []

    def _check(self, line: _Line, known: Known, packet: Packet) -> None:
        who = f"producer {line.name!r}"
        if packet.start != known.position or packet.rows != packet.end - packet.start:
            raise BadPeer(
                f"{who} sent {packet.rows} tuples for the positions {packet.start} to "
                f"{packet.end}, but {known.position} comes next, and every position has a tuple"
            )
        if known.ended and not packet.final:
            raise BadPeer(f"{who} has ended at position {known.position} and sent more")
        if packet.final and packet.rows:
            raise BadPeer(f"{who} sent tuples with its end")
        if packet.watermark is not None and packet.watermark >= IDLE:
            raise BadPeer(f"{who} sent a watermark that no time has: {packet.watermark}")
        if line.unsafe_bytes > MOST_WINDOW_BYTES:
            raise BadPeer(
                f"{who} sent {line.unsafe_bytes} bytes without waiting for them to become durable; "
                f"the limit is {MOST_WINDOW_BYTES}"
            )

    def _offer(self, connection: int, fresh: Known, packet: Packet, batch: pa.RecordBatch) -> None:
        """Queue a turn, and beside it what it does for its producer."""
        line = self._lines[connection]
        before = self._arrived.get(line.name)
        self._arrived[line.name] = fresh
        self._behind.moved(line.name, before)
        self._notes.append(Note(line.name, fresh, connection, line.packets, packet.size))
        time, at = self._rising_time(), self._merge.expected(_CHANNEL)
        if packet.final and self._ended:
            self._merge.end(_CHANNEL)
        else:
            self._merge.offer(_CHANNEL, StreamEvent(at, batch, time))

    def _rising_time(self) -> int | None:
        """How far time has come for all who have not ended, when that is further than before."""
        time = self._behind.least
        if time is None or time <= self._time:
            return None
        self._time = time
        return time

    @property
    def _ended(self) -> bool:
        return bool(self._arrived) and not self._behind.running

    def gone(self, connection: int) -> None:
        """A producer's connection is gone; what it sent is taken all the same."""
        line = self._lines.pop(connection, None)
        if line is not None:
            del self._line_of[line.name]

    def fell_silent(self, channel: int) -> None:
        """Nothing has come for long: a turn that is nobody's says so."""
        self._notes.append(None)
        self._merge.fell_silent(channel)

    # --- turns -------------------------------------------------------------------------------

    def taken(self) -> Note | None:
        """The channel's next turn is taken: what it does, for its frame."""
        note = self._notes.popleft() if self._notes else None
        if note is not None:
            self._written[note.name] = note.known
            self._changed.add(note.name)
        return note

    def section(self) -> Section:
        """Who has changed since the last frame, or all, for the frame of this turn."""
        everyone = self._frames >= len(self._written)
        names = sorted(self._written if everyone else self._changed)
        self._frames = 1 if everyone else self._frames + 1
        self._changed.clear()
        texts = [name.encode() for name in names]
        known = np.array([self._written[name] for name in names], np.int64).reshape(-1, 4)
        columns = [
            np.frombuffer(b"".join(texts), np.uint8),
            np.array([len(text) for text in texts], np.int64),
            *known.T,
            np.array([everyone], np.int64),
        ]
        return Section(SectionKind.PRODUCERS, pack_columns(columns))

    def durable(self, notes: Iterable[Note]) -> list[NodeCommand]:
        """Turns are durable: tell their producers, if they still listen, once each."""
        commands: dict[tuple[int, bool], NodeCommand] = {}
        for name, known, connection, packets, size in notes:
            line = self._lines.get(connection)
            if line is None or line.name != name:
                continue
            if packets:
                line.unsafe_bytes -= size
                commands[connection, True] = Confirm(connection, Ack(packets, known.position))
            else:
                line.begun = True
                commands[connection, False] = Answer(
                    connection, Begins(known.position, known.epoch)
                )
        return list(commands.values())

    @property
    def frames_needed(self) -> int:
        """How many of the newest frames it takes to know all producers."""
        return self._frames if self._written else 0

    # --- recovery ----------------------------------------------------------------------------

    def recover(self, frames: Iterable[Frame]) -> None:
        """Know what the log knows; `frames` newest first, read as far as is necessary."""
        found, count = producers_of(frames)
        self._arrived, self._written = dict(found), found
        self._behind = FurthestBehind(self._arrived)
        self._frames = count or MOST_PRODUCERS
        if self._ended:
            self._notes.append(None)
            self._merge.end(_CHANNEL)

    def check_invariants(self) -> None:
        """What always holds between events."""
        assert len(self._arrived) <= MOST_PRODUCERS
        self._behind.check_invariants()
        assert {line.name: number for number, line in self._lines.items()} == self._line_of
        for name, known in self._written.items():
            assert known.position <= self._arrived[name].position, "wrote what has not arrived"
            assert known.epoch <= self._arrived[name].epoch, "wrote a claim that nobody made"


def producers_of(frames: Iterable[Frame]) -> tuple[dict[str, Known], int]:
    """All producers a log knows, and how many of its newest frames say so; newest frame first."""
    found: dict[str, Known] = {}
    count, everyone, frame = 0, True, None
    for frame in frames:
        some, everyone = producers_in(frame)
        found = some | found
        count += 1
        if everyone:
            break
    if frame is not None and not everyone:
        raise DamagedLog(
            f"the log says of its producers only what changed since frame {frame.sequence}: it "
            "was trimmed too far; restore the older segments",
            segment=frame.segment,
            offset=frame.offset,
            sequence=frame.sequence,
        )
    return found, count


def producers_in(frame: Frame) -> tuple[dict[str, Known], bool]:
    """What a frame of an entry's log says of producers, and whether of all of them."""
    payload = frame.section(SectionKind.PRODUCERS)
    columns = unpack_columns(payload) if payload is not None else []
    sizes = [column.size for column in columns]
    kinds = [column.dtype for column in columns]
    if kinds != [np.uint8] + [np.int64] * 6 or sizes[1:] != [sizes[1]] * 5 + [1]:
        raise DamagedFrame(
            f"frame {frame.sequence} does not say whose its tuples are: the log is not that of an "
            "entry, or was written before producers had names; start the query in a new folder"
        )
    text, lengths = columns[0].tobytes(), columns[1]
    ends = np.cumsum(lengths)
    if np.any((lengths <= 0) | (lengths > MAX_NAME_LENGTH)) or int(
        ends[-1] if ends.size else 0
    ) != len(text):
        raise DamagedFrame(f"frame {frame.sequence} has names of producers that are none")
    try:
        names = [
            checked_name(text[end - length : end].decode())
            for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
        ]
    except (UnicodeDecodeError, InvalidName) as error:
        raise DamagedFrame(f"frame {frame.sequence}: {error}") from error
    rows = zip(*(column.tolist() for column in columns[2:6]), strict=True)
    known = [Known(epoch, position, time, bool(ended)) for epoch, position, time, ended in rows]
    return dict(zip(names, known, strict=True)), bool(columns[6][0])


def _superseded(name: str, epoch: int, by: int) -> Refused:
    return Refused(f"epoch {epoch} of producer {name!r} was superseded by {by}", fenced=True)
