"""Where a node runs whose records are held by a second process: what is relayed, what may leave.

A record is relayed when it is left, or as soon as the other place has answered what was relayed
before: one that is far away, or has little time, gets many at once.  Who is alone does not wait.

What always holds:

1. From `Vouch` until the place has left, nothing is let go that the place has not said to hold.
2. What a place in sync may ask for when its link breaks is kept: everything since its last answer.
3. A place that has nothing is told all that it takes, while turns go on; output waits for it only
   when little is left to tell.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from rewake.log.frame import Frame, TurnRecord
from rewake.model.errors import BadPeer, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import StatefulOperator
from rewake.recovery.approach import Approach, Keeper, Kept, Recovery, Release, Turn
from rewake.recovery.driven import Forward, RecoveryCommand, Say, Vouch
from rewake.recovery.standby.words import NOTHING_HELD, Purpose, pieces, wanted_in

__all__ = ["HeldElsewhere", "KeptRecord", "Relaying"]

# Whoever lacks no more than this is waited for.
_LITTLE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class HeldElsewhere(Approach):
    """What approaches have in common under which a second process holds a node's records.

    `output`: "held" until the other place has its record, or let go "at_once".  What was let go
    without a record is made again after a crash, under the same positions: whoever has it drops it,
    so nobody notices, unless chance has a part in what is made.
    """

    keeper: ClassVar[Keeper] = Keeper.STANDBY
    retains: ClassVar[Kept] = Kept.IN_QUEUE
    places: ClassVar[int] = 2

    output: str = "held"

    def __post_init__(self) -> None:
        if self.output not in _RELEASES:
            raise UsageError(f'output={self.output!r} is neither "held" nor "at_once"')

    @property
    def release(self) -> Release:  # type: ignore[override]  # a user's choice
        """When output leaves."""
        return _RELEASES[self.output]


_RELEASES: Final = {"held": Release.WHEN_KEPT, "at_once": Release.AT_ONCE}


class KeptRecord(NamedTuple):
    """A record that is kept for the other place; `made_from` is its input, if that is relayed."""

    sequence: int
    position: int
    record: TurnRecord
    made_from: bytes = b""

    @property
    def size(self) -> int:
        """Its bytes, roughly."""
        return len(self.made_from) + sum(len(each.payload) for each in self.record.sections)


class Relaying(Recovery):
    """Drives `inner`, which makes the records, and has them held by one other place."""

    def __init__(self, inner: Recovery, frames: Iterable[Frame] = ()) -> None:
        """`frames`: what this place held while it stood by, newest first."""
        self.inner = inner
        self.operator: StatefulOperator = inner.operator
        self.kept = deque(_kept(each) for each in reversed(tuple(frames)))
        newest = self.kept[-1] if self.kept else None
        # Where records and output go on, and below which nobody needs records.
        self.next = 0 if newest is None else newest.sequence + 1
        self.output = 0 if newest is None else newest.position + newest.record.tuples
        self._first = self.kept[0].sequence if self.kept else 0
        # The other place: what was said to it, what it has said to hold, whether it owes an answer.
        self._place: int | None = None
        self._said: int | None = None
        self._answered = 0
        self._asked = False
        # From which record on output waits for it; and whether the coordinator knows it in sync.
        self._waits_from: int | None = None
        self._vouched = False

    # --- the operator is driven as the inner one does ----------------------------------------

    @property
    def position(self) -> int:  # type: ignore[override]
        """The next input position."""
        return self.inner.position

    @property
    def recovering(self) -> bool:
        """Whether the next input is a replay."""
        return self.inner.recovering

    @property
    def replay_through(self) -> int:
        """The last position whose effects are recorded."""
        return self.inner.replay_through

    @property
    def acknowledged(self) -> int:
        """Input that is not needed once the other place has the newest record."""
        return self.inner.acknowledged

    @property
    def frames_needed(self) -> int:
        """How many of the newest records a promoted place would read."""
        return self.inner.frames_needed

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """As the inner one."""
        return self.inner.turn(event, now_ms)

    def bare_record(self) -> TurnRecord:
        """As the inner one."""
        return self.inner.bare_record()

    def progress(self) -> dict[str, float]:
        """As the inner one; and whether a second process could go on, and what it lacks."""
        lacks = float(self.next - self._answered) if self._place is not None else 0.0
        told = {"in_sync": float(self._vouched), "unconfirmed_records": lacks}
        return self.inner.progress() | told

    def check_invariants(self) -> None:
        """What always holds between turns."""
        self.inner.check_invariants()
        numbers = [each.sequence for each in self.kept]
        assert numbers == list(range(self.next - len(numbers), self.next)), "a gap in what is kept"
        assert not self._vouched or self._waits_from is not None, "lets go what nobody else holds"

    # --- records -----------------------------------------------------------------------------

    def keep(self, sequence: int, position: int, record: TurnRecord) -> Sequence[RecoveryCommand]:
        """Have it held; or let it go, if there is nobody to hold it."""
        self.kept.append(self._as_kept(sequence, position, record))
        self.next, self.output = sequence + 1, position + record.tuples
        alone = [] if self._waits_from is not None else [Forward(self.next)]
        return [*alone, *self._tell()]

    def _as_kept(self, sequence: int, position: int, record: TurnRecord) -> KeptRecord:
        return KeptRecord(sequence, position, record)

    def forget(self, before: int) -> Sequence[RecoveryCommand]:
        """Nobody needs these, but for the other place, which may not have got them."""
        self._first = max(self._first, before)
        self._drop()
        return ()

    def _drop(self) -> None:
        # A place that is not in sync begins anew when its link breaks.
        owed = self._answered if self._vouched else self._said
        floor = self._first if owed is None else min(self._first, owed)
        while self.kept and self.kept[0].sequence < floor:
            self.kept.popleft()

    # --- the other place ---------------------------------------------------------------------

    def joined(self, place: int) -> Sequence[RecoveryCommand]:
        """It says first what it holds."""
        self._place, self._said, self._asked = place, None, False
        return ()

    def left(self, place: int) -> Sequence[RecoveryCommand]:
        """What waited for it need not wait."""
        assert place == self._place or self._place is None, "somebody else was here"
        self._place = self._said = self._waits_from = None
        self._asked = self._vouched = False
        self._answered = 0
        self._drop()
        return [Forward(self.next)]

    def heard(self, place: int, words: bytes) -> Sequence[RecoveryCommand]:
        """It holds everything before what it wants."""
        wanted = wanted_in(words)
        if wanted == NOTHING_HELD:
            if self._vouched:
                raise BadPeer(f"place {place} was in sync, and holds nothing now")
            self._said, self._asked = None, False
            return self._tell(anew=True)
        if wanted > self.next or (self._vouched and wanted < self._answered):
            raise BadPeer(f"place {place} wants record {wanted}; there are {self.next}")
        self._said = wanted if self._said is None else max(self._said, wanted)
        self._asked, self._answered = False, wanted
        commands = self._confirmed(place, wanted)
        self._drop()
        return [*commands, *self._tell()]

    def _confirmed(self, place: int, wanted: int) -> list[RecoveryCommand]:
        if self._waits_from is None:
            return []
        if not self._vouched and wanted >= self._waits_from:
            self._vouched = True
            return [Vouch(place), Forward(wanted)]
        return [Forward(wanted)] if self._vouched else []

    def _tell(self, *, anew: bool = False) -> list[RecoveryCommand]:
        """Say what it has not been told, unless it still owes an answer."""
        if self._place is None or self._asked or (self._said is None and not anew):
            return []
        begins_anew = anew or not self._continues(self._said)
        fresh = [each for each in self.kept if begins_anew or each.sequence >= (self._said or 0)]
        if not fresh and self._vouched:
            return []
        if self._waits_from is None and not begins_anew and _little(fresh):
            self._waits_from = self.next
        self._said, self._asked = self.next, True
        messages = self._anew(fresh) if begins_anew else self._more(fresh)
        return [
            Say(self._place, piece)
            for purpose, frames in messages
            for piece in pieces(purpose, self._first, self.next, self.output, frames)
        ]

    def _continues(self, wanted: int | None) -> bool:
        """Whether what it wants next is still kept."""
        return wanted is not None and (wanted == self.next or self._has(wanted))

    def _has(self, sequence: int) -> bool:
        return bool(self.kept) and self.kept[0].sequence <= sequence

    @abstractmethod
    def _anew(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        """What a place is told that has nothing, or too little."""

    @abstractmethod
    def _more(self, kept: Sequence[KeptRecord]) -> Iterable[tuple[Purpose, Iterable[bytes]]]:
        """What a place is told that has everything before."""


def _kept(frame: Frame) -> KeptRecord:
    record = TurnRecord(
        frame.t_end,
        frame.timestamp,
        frame.open_windows,
        frame.tuples,
        frame.records,
        frame.sections,
    )
    return KeptRecord(frame.sequence, frame.position, record)


def _little(kept: Iterable[KeptRecord]) -> bool:
    return sum(each.size for each in kept) <= _LITTLE_BYTES
