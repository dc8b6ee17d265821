"""Which segments of a stripe are the log, and which bytes of them.

The newest segment names its predecessor and where that one's live bytes end, and so on back to the
floor.  What is on that chain is the log; what is not (a fenced writer's later segments) is dead.

The newest is the one of the highest epoch, unless a higher epoch in any stripe has sealed the log
below its first sequence: then a fenced writer made it, in a stripe its successor has not reached
yet.  (Sealed just there, it is empty, or all its frames are dead.)  Without reading a frame this
finds a segment that is missing, too short, of another log, or whose header is damaged.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rewake.log.files.damage import damaged
from rewake.log.files.layout import SegmentId, segment_id
from rewake.log.files.segment import SegmentHeader, read_segment_header
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["Chain", "LiveSegment", "Seals", "SegmentFiles", "load_chains"]

UNSEALED = 1 << 64


class LiveSegment(NamedTuple):
    """A segment of the log; its live bytes end at `end`, or are open-ended in the newest one."""

    header: SegmentHeader
    end: int | None

    @property
    def id(self) -> SegmentId:
        """Which segment."""
        return self.header.id


Chain = tuple[LiveSegment, ...]


class Seals:
    """For each epoch, the sequence from which on its frames are dead.

    Seals rise with epochs, unless a writer went back: then its seal is lower than those before, and
    than what older writers and their marks say.
    """

    def __init__(self, headers: Iterable[SegmentHeader]) -> None:
        seals = {header.id.epoch: header.seal for header in headers}
        self._epochs = sorted(seals)
        self._limits = [UNSEALED]  # of the newest epoch first, then of all before the newest, ...
        for epoch in reversed(self._epochs):
            self._limits.append(min(self._limits[-1], seals[epoch]))
        self._limits.reverse()

    def limit(self, epoch: int) -> int:
        """Frames of `epoch`, or an older one, with this sequence or a higher one are dead."""
        return self._limits[bisect_right(self._epochs, epoch)]


class SegmentFiles:
    """The segment files of one stripe, sorted by whether their headers can be read."""

    def __init__(self, store: Store, stripe: int, log_id: int) -> None:
        self.headers: dict[SegmentId, SegmentHeader] = {}
        self.damaged: dict[SegmentId, DamagedLog] = {}
        for name in store.names():
            segment = segment_id(name)
            if segment is None:
                continue
            try:
                self.headers[segment] = read_segment_header(
                    store, segment, stripe=stripe, log_id=log_id
                )
            except DamagedLog as error:
                self.damaged[segment] = error


def load_chains(
    stores: Sequence[Store], *, log_id: int, floor: int
) -> tuple[tuple[Chain, ...], Seals]:
    """The chain of every stripe, oldest segment first, and the seals; DamagedLog for a gap."""
    found = [SegmentFiles(store, stripe, log_id) for stripe, store in enumerate(stores)]
    headers = [header for stripe in found for header in stripe.headers.values()]
    _refuse_unreadable_epochs(found, headers)
    seals = Seals(headers)
    return tuple(
        _chain(store, stripe, seals, floor) for store, stripe in zip(stores, found, strict=True)
    ), seals


def _refuse_unreadable_epochs(found: list[SegmentFiles], headers: list[SegmentHeader]) -> None:
    """A damaged header of the newest epoch may hide a seal: nothing can be told without it."""
    newest = max((header.id.epoch for header in headers), default=-1)
    for stripe in found:
        for segment, error in stripe.damaged.items():
            if segment.epoch >= newest:
                raise error


def _chain(store: Store, found: SegmentFiles, seals: Seals, floor: int) -> Chain:
    candidates = [
        segment for segment in found.headers if segment.first_sequence <= seals.limit(segment.epoch)
    ]
    if not candidates:
        return ()
    newest = max(candidates, key=lambda segment: (segment.epoch, segment.first_sequence))
    chain = [LiveSegment(found.headers[newest], None)]
    while _goes_on(chain[-1].header, found, floor):
        chain.append(_predecessor(store, found, chain[-1].header))
    return tuple(reversed(chain))


def _goes_on(header: SegmentHeader, found: SegmentFiles, floor: int) -> bool:
    """Whether what comes before this segment is still part of the log.

    At the floor it is only if it is there and begins at the floor too: an empty segment whose
    writer was succeeded.  The mark may still name it, when the successor died before its own.
    """
    previous = header.previous
    if previous is None:
        return False
    if header.id.first_sequence > floor:
        return True
    return previous in found.headers and previous.first_sequence >= floor


def _predecessor(store: Store, found: SegmentFiles, header: SegmentHeader) -> LiveSegment:
    previous, end = header.previous, header.previous_end
    assert previous is not None
    if (previous.epoch, previous.first_sequence) >= (header.id.epoch, header.id.first_sequence):
        raise damaged(
            f"segment {header.id.name} says that it follows {previous.name}, which is not older",
            header.id.name,
            0,
            header.id.first_sequence,
        )
    if previous in found.damaged:
        raise found.damaged[previous]
    if previous not in found.headers:
        raise damaged(
            f"segment {previous.name} is missing, though {header.id.name} follows it",
            previous.name,
            0,
            previous.first_sequence,
        )
    size = store.size(previous.name)
    if size < end:
        raise damaged(
            f"segment {previous.name} ends at byte {size}, but {end} bytes of it are durable",
            previous.name,
            size,
        )
    return LiveSegment(found.headers[previous], end)
