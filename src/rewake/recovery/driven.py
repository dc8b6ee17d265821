"""What a node drives, turn by turn: one fragment under an approach, in this place and in others.

Events in, commands out.  What a turn records is part of its answer; everything else that may happen
has a method that does nothing unless an approach says otherwise, and answers with commands.

The host's promise: events come one at a time, and what an answer asks for is done before the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from rewake.log.files.lineage import Lineage
from rewake.log.frame import Frame, SectionKind, TurnRecord
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.stateful import Emissions, StatefulOperator
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.promises.rates import RecoveryRates

__all__ = [
    "NOTHING",
    "Forward",
    "GoOn",
    "Hold",
    "Keep",
    "LogSoFar",
    "Marker",
    "Recovery",
    "RecoveryCommand",
    "Say",
    "Standby",
    "Turn",
    "Vouch",
    "Wake",
]


class Turn(NamedTuple):
    """What a turn yields: the record to append (None: nothing to persist), and what to forward."""

    record: TurnRecord | None
    outputs: Emissions = ()
    checks: int = 0

    @property
    def check_bytes(self) -> int:
        """What its CHECKs take in the log."""
        if self.record is None or not self.checks:
            return 0
        checks = [each for each in self.record.sections if each.kind is SectionKind.CHECKS]
        return sum(memoryview(each.payload).nbytes for each in checks)

    def on(self, output: int) -> pa.RecordBatch | None:
        """What goes to an output, or None."""
        return next((batch for number, batch in self.outputs if number == output), None)


NOTHING = Turn(None)

# They stand between packets, and are many.
MAX_MARKER_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class LogSoFar:
    """What earlier lives of a node left: frames, newest first, where it goes on, who wrote it.

    `alive`: what a place has kept up that stood by, and is the node's from now on.  `bookmark`:
    what the coordinator has kept of a node that keeps nothing itself.
    """

    frames: Iterable[Frame] = ()
    next_sequence: int = 0
    next_position: int = 0
    lineage: Lineage | None = None
    alive: Recovery | None = None
    bookmark: Bookmark | None = None


# --- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Tell another place of the node; dropped silently when it is not there."""

    place: int
    words: bytes


@dataclass(frozen=True, slots=True)
class Forward:
    """What turns before this sequence recorded is kept: their output may leave."""

    before: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Call `woke` after so long."""

    ms: float


@dataclass(frozen=True, slots=True)
class Vouch:
    """A place holds all that it takes to go on from here; nothing may leave that it does not hold.

    From now on it may be promoted, until it is said to have left.
    """

    place: int


@dataclass(frozen=True, slots=True)
class Marker:
    """Say this to all nodes that read now, behind the output of all turns so far.

    It is no part of the stream: a link that breaks loses it, and so does a node that takes turns
    again after a crash.  Sinks and clients hear none.
    """

    words: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.words) <= MAX_MARKER_BYTES:
            raise UsageError(
                f"a marker of {len(self.words)} bytes; it has at least one and at most "
                f"{MAX_MARKER_BYTES}"
            )


@dataclass(frozen=True, slots=True)
class Hold:
    """Take nothing more of this input; what arrives waits, and its upstream with it."""

    channel: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """Take of this input again."""

    channel: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Have the coordinator keep this bookmark in place of the last; `bookmark_kept` when it is."""

    bookmark: Bookmark


RecoveryCommand = Say | Forward | Wake | Vouch | Marker | Hold | GoOn | Keep


# --- where the node runs -------------------------------------------------------------------------


class Recovery(ABC):
    """One fragment under an approach, driven turn by turn."""

    operator: StatefulOperator
    # The next input position.
    position: int

    @property
    @abstractmethod
    def recovering(self) -> bool:
        """Whether the next input is a replay of turns that the log has already."""

    @property
    @abstractmethod
    def acknowledged(self) -> int:
        """Input up to here (inclusive) is not needed for recovery any more."""

    @property
    @abstractmethod
    def frames_needed(self) -> int:
        """How many of the newest frames recovery would read; older ones may be trimmed."""

    @abstractmethod
    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:
        """Process the stream event at `position`, or replay it if the log has its effects."""

    @abstractmethod
    def bare_record(self) -> TurnRecord:
        """A record that says no more than that input up to `position` has been consumed.

        Asked for between turns, when nothing is being replayed, and then appended.
        """

    @abstractmethod
    def progress(self) -> dict[str, float]:
        """Figures for people: open windows, extent, tuples to replay."""

    def check_invariants(self) -> None:  # noqa: B027 (nothing is an answer)
        """What always holds between turns."""

    # --- of those that know beforehand what a crash would cost -------------------------------

    @property
    def rates(self) -> RecoveryRates | None:
        """What the parts of a recovery cost, where something was promised; the host keeps it."""
        return None

    @property
    def advice(self) -> str:
        """Why a promise cannot be kept, and what to do; mostly nothing."""
        return ""

    @property
    def replay_through(self) -> int:
        """The last position whose effects the log has: tc."""
        return -1

    # --- what else may happen ----------------------------------------------------------------

    def began(self) -> Sequence[RecoveryCommand]:
        """The node runs; before the first turn."""
        return ()

    def woke(self, now_ms: float) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """What `Wake` asked for."""
        return ()

    def marked(self, channel: int, words: bytes) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """An upstream says this behind all that was taken of this input; between two turns."""
        return ()

    def ended(self, channel: int) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """An input has ended, and all of it is taken."""
        return ()

    def released(self, position: int) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """No node that reads will ask again for output before this position; it only rises."""
        return ()

    # --- of those that leave bookmarks -------------------------------------------------------

    def gave(self, position: int) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """A turn has sent output, and all there is ends at this position."""
        return ()

    def bookmark_kept(self, bookmark: Bookmark) -> Sequence[RecoveryCommand]:
        """What `Keep` asked for is durable; from now on the node would go on from there."""
        raise AssertionError(f"{bookmark} was not asked for")

    # --- of those that keep records themselves, in other places ------------------------------

    def keep(
        self,
        sequence: int,
        position: int,  # noqa: ARG002
        record: TurnRecord,  # noqa: ARG002
    ) -> Sequence[RecoveryCommand]:
        """A turn has left this record, whole; its output is held until `Forward`.

        `sequence` counts records, `position` is that of its first output tuple.
        """
        raise AssertionError(f"record {sequence} is kept elsewhere")

    def forget(self, before: int) -> Sequence[RecoveryCommand]:
        """Nobody needs what was recorded before this sequence any more."""
        raise AssertionError(f"records before {before} are kept elsewhere")

    def joined(self, place: int) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """Another place can be told something, and knows nothing yet but what it says first."""
        return ()

    def left(self, place: int) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """Another place is gone, and will never be promoted; what waited for it need not wait."""
        return ()

    def heard(self, place: int, words: bytes) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """Another place says something.  Raises BadPeer when it makes no sense."""
        return ()


# --- where it may run next -----------------------------------------------------------------------


class Standby(ABC):
    """What an approach keeps of a node in another place, in memory, until that place is promoted.

    What always holds: what it has said to hold is in `past`.
    """

    def opened(self) -> Sequence[bytes]:
        """The place where the node runs can be told something: what to say first."""
        return ()

    @abstractmethod
    def heard(self, words: bytes) -> Sequence[bytes]:
        """The place where the node runs says something; what to answer.  Raises BadPeer."""

    @abstractmethod
    def past(self) -> LogSoFar:
        """It is promoted: what the node is built from."""
