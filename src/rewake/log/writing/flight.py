"""What a pipeline keeps: its states, its limits, batches on their way, and a lane per stripe."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from rewake.log.files.index import INDEX_INTERVAL, IndexEntry
from rewake.log.files.layout import SegmentId
from rewake.log.files.mark import Frontier, StripeEnd
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.writing.commands import Command

__all__ = ["ALIVE", "TRANSITIONS", "Batch", "Lane", "Limits", "Mode", "Pending", "State"]


class Mode(Enum):
    """When a frame is complete."""

    STABLE = "stable"
    DELAYED = "delayed"


class State(Enum):
    """Whether frames can complete."""

    RUNNING = "running"
    STALLED = "stalled"
    FAILED = "failed"
    FENCED = "fenced"
    CLOSED = "closed"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.RUNNING: frozenset({State.STALLED, State.FAILED, State.FENCED, State.CLOSED}),
    State.STALLED: frozenset({State.RUNNING, State.FAILED, State.FENCED, State.CLOSED}),
    State.FAILED: frozenset({State.CLOSED}),
    State.FENCED: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}
ALIVE: Final = frozenset({State.RUNNING, State.STALLED})


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that trade memory and latency for throughput."""

    batch_bytes: int = 4 << 20
    batch_frames: int = 512
    window_bytes: int = 64 << 20
    window_frames: int = 16384
    segment_bytes: int = 64 << 20
    sync_bytes: int = 16 << 20
    index_interval: int = INDEX_INTERVAL
    # After a sync a stripe rests until so much has gathered, or so long; 0: it does not rest.
    gather_bytes: int = 1 << 20
    gather_ms: float = 0.0
    # Whoever is in a hurry ends the rest, but for so much of it.
    rest_ms: float = 0.0


class Pending(NamedTuple):
    """A frame that waits for its batch, in pieces, and what lies behind it."""

    parts: list[bytes]
    size: int
    position: int
    timestamp: int


@dataclass(slots=True)
class Batch:
    """Consecutive frames written to one stripe at once."""

    stripe: int
    first_sequence: int
    frontier: Frontier  # behind the batch; its ends are filled in when it is confirmed
    frames: int
    size: int
    entry: IndexEntry
    end: StripeEnd | None = None
    written: bool = False
    synced: bool = False


@dataclass(slots=True)
class Lane:
    """Where a stripe's next bytes go, and what is in the air there."""

    number: int
    segment: SegmentId
    offset: int = SEGMENT_HEADER_SIZE
    index_offset: int = 0
    indexed: int = SEGMENT_HEADER_SIZE  # the segment is indexed up to here
    batch: Batch | None = None
    buffers: Sequence[bytes] = ()
    command: Command | None = None  # in the air; repeated by `retry`
    stalled: bool = False
    dirty: list[Batch] = field(default_factory=list)
    dirty_bytes: int = 0
