"""An approach from outside the package: records in the memory of a second process.

Where the node runs, records are gathered and said to the standby every few milliseconds; output
waits until the standby has answered.  Whoever is alone does not wait.  What is said:

    to the standby    first, next, position (u64 each), frames: hold what is at `first` or after;
                      with these frames, records go on at `next`, output at `position`
    from the standby  next (u64): what it wants; everything before it is held
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from rewake.log.frame import TurnRecord, decode_frame, encode_frame
from rewake.model.errors import BadPeer
from rewake.recovery.approach import Approach, Keeper, Kept, register
from rewake.recovery.driven import Forward, LogSoFar, Recovery, Say, Standby, Vouch, Wake
from rewake.recovery.eventual.approach import ContinuousEventual

_HEAD, _ANSWER = Struct("<QQQ"), Struct("<Q")


@register
@dataclass(frozen=True)
class Mirrored(Approach):
    """Continuous eventual checkpointing whose log is the memory of a second process."""

    name: ClassVar[str] = "mirrored"
    keeper: ClassVar[Keeper] = Keeper.STANDBY
    retains: ClassVar[Kept] = Kept.IN_QUEUE
    places: ClassVar[int] = 2
    every_ms: float = 5.0

    def build(self, operator, emit, frames):
        """What is left of the node before, or nothing."""
        found = tuple(frames)
        return Mirroring(ContinuousEventual().build(operator, emit, found), found, self.every_ms)

    def stand_by(self, make, emit):  # noqa: ARG002
        """Holds nothing yet."""
        return Mirror()


class Mirroring(Recovery):
    """Where the node runs.  Held: everything that `forget` has not said, in order."""

    def __init__(self, inner, frames, every_ms):
        self._inner, self._every_ms = inner, every_ms
        self._held = deque((each.sequence, _bytes_of(each)) for each in reversed(frames))
        self._next = frames[0].sequence + 1 if frames else 0
        self._position = frames[0].position + frames[0].tuples if frames else 0
        # Of the standby: who it is, what was said to it, and whether there is something to say.
        self._place, self._said, self._due = None, None, False
        # Whether output waits for it, and whether it was in sync since.
        self._waits = self._vouched = False

    # --- the operator is driven as under continuous eventual checkpointing -------------------

    @property
    def operator(self):
        return self._inner.operator

    @property
    def position(self):
        return self._inner.position

    @property
    def recovering(self):
        return self._inner.recovering

    @property
    def acknowledged(self):
        return self._inner.acknowledged

    @property
    def frames_needed(self):
        return self._inner.frames_needed

    def turn(self, event, now_ms=0.0):
        return self._inner.turn(event, now_ms)

    def bare_record(self):
        return self._inner.bare_record()

    def progress(self):
        return self._inner.progress() | {"mirrored": float(self._vouched)}

    # --- what the standby is told ------------------------------------------------------------

    def began(self):
        return [Wake(self._every_ms)]

    def keep(self, sequence, position, record):
        frame = encode_frame(
            record, log_id=1, epoch=1, sequence=sequence, position=position, durable=0
        )
        self._held.append((sequence, frame))
        self._next, self._position = sequence + 1, position + record.tuples
        self._due = True
        return [] if self._waits else [Forward(self._next)]

    def forget(self, before):
        while self._held and self._held[0][0] < before:
            self._held.popleft()
        return []

    def joined(self, place):
        self._place, self._said = place, None
        return []

    def woke(self, now_ms):  # noqa: ARG002
        return [*self._gathered(), Wake(self._every_ms)]

    def _gathered(self):
        if self._said is None or not self._due:
            return []
        first = self._held[0][0] if self._held else self._next
        fresh = [frame for sequence, frame in self._held if sequence >= self._said]
        self._said, self._waits, self._due = self._next, True, False
        head = _HEAD.pack(first, self._next, self._position)
        return [Say(self._place, head + b"".join(fresh))]

    def heard(self, place, words):
        if len(words) != _ANSWER.size:
            raise BadPeer(f"{len(words)} bytes are no answer of a standby")
        (wanted,) = _ANSWER.unpack(words)
        if self._said is None:
            self._said, self._due = wanted, True
        elif not self._vouched and wanted == self._said:
            self._vouched = True
            return [Vouch(place), Forward(wanted)]
        return [Forward(wanted)] if self._vouched else []

    def left(self, place):
        assert place == self._place
        self._place, self._said = None, None
        self._waits = self._vouched = False
        return [Forward(self._next)]


class Mirror(Standby):
    """The other place.  Held: frames in order, up to where records go on."""

    def __init__(self):
        self._frames = deque()
        self._next = self._position = 0

    def opened(self):
        return [_ANSWER.pack(self._next)]

    def heard(self, words):
        if len(words) < _HEAD.size:
            raise BadPeer(f"{len(words)} bytes are no records")
        first, self._next, self._position = _HEAD.unpack_from(words)
        at = _HEAD.size
        while at < len(words):
            self._frames.append(decode_frame(words, at))
            at += self._frames[-1].length
        while self._frames and self._frames[0].sequence < first:
            self._frames.popleft()
        return [_ANSWER.pack(self._next)]

    def past(self):
        return LogSoFar(tuple(reversed(self._frames)), self._next, self._position)


def _bytes_of(frame):
    record = TurnRecord(
        frame.t_end, frame.timestamp, frame.open_windows, frame.tuples, frame.records,
        frame.sections,
    )  # fmt: skip
    return encode_frame(
        record, log_id=1, epoch=1, sequence=frame.sequence, position=frame.position, durable=0
    )
