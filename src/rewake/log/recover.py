"""Where a log ends: a torn tail is cut, damage is refused.

Recovery reads the mark and scans forward from it, never the whole log.  A mark that a later epoch's
seal outranks (see `survey`) is replaced by that seal.  In each stripe it walks
valid frames to the first bytes that are none; over all stripes, the log ends at the first sequence
that no stripe has.

Bytes that are no frame are a torn tail only if nothing proves that a frame was durable there.  Two
things prove it: the mark, and the `durable` field of any frame with a valid header further on in
the same segment (a writer states there what it knew to be durable).  If the log would end before
what is proven, frames are lost: `DamagedLog`.

Recovery changes nothing, so recovering twice, or being killed at it, is harmless.  With `settle` it
first makes what it is about to adopt durable, and reads it back from the medium.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rewake.log.files.damage import damaged
from rewake.log.files.mark import Frontier, StripeEnd
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import FrameHeader, frame_length_before
from rewake.log.reading.chain import Chain, LiveSegment, Seals
from rewake.log.reading.scan import FoundFrame, Window, frames_in, headers_in
from rewake.log.reading.survey import Survey
from rewake.log.store import Store
from rewake.model.errors import DamagedFrame, DamagedLog

__all__ = ["Recovered", "recover"]


class _Stop(NamedTuple):
    """Where the walk through a stripe came to bytes that are no frame, and why."""

    segment: str
    offset: int
    reason: str


class Recovered(NamedTuple):
    """What recovery found: the end of the log, and how much of it is proven durable."""

    end: Frontier
    proven: int
    tail: tuple[tuple[int, StripeEnd, FrameHeader], ...]
    start: Frontier

    def frontier_at(self, sequence: int) -> Frontier:
        """The frontier before `sequence`, which is at or behind where the scan began."""
        frontier = self.start
        for stripe, end, header in self.tail:
            if header.sequence >= sequence:
                break
            frontier = advanced(frontier, stripe, end, header)
        return frontier


class _StripeScan:
    """The walk through one stripe from the mark on."""

    def __init__(self, store: Store, *, log_id: int, seals: Seals) -> None:
        self.frames: list[tuple[StripeEnd, FrameHeader]] = []
        self.proven = 0
        self.stop: _Stop | None = None
        self._store = store
        self._log_id = log_id
        self._seals = seals
        self._last = -1

    def walk(self, segments: Sequence[LiveSegment], start: StripeEnd) -> None:
        """Collect the valid frames of `segments`, the first of them from `start` on."""
        offset = start.offset
        for segment in segments:
            stop = segment.end if segment.end is not None else self._store.size(segment.id.name)
            window = Window(self._store, segment.id, log_id=self._log_id, stop=stop)
            self._walk_segment(window, segment, offset)
            if self.stop is not None:
                self._refuse_gap(segment)
                return
            offset = SEGMENT_HEADER_SIZE

    def _refuse_gap(self, segment: LiveSegment) -> None:
        """A segment that another one follows was durable up to its end: nothing there is torn."""
        if self.stop is not None and segment.end is not None:
            raise _lost(self.stop.segment, self.stop.offset, self._last + 1, self.stop.reason)

    def _walk_segment(self, window: Window, segment: LiveSegment, offset: int) -> None:
        limit = self._seals.limit(segment.id.epoch)
        try:
            for found in frames_in(window, offset):
                header = found.header
                if header.sequence >= limit:
                    return  # a fenced writer's bytes, behind the seal: dead
                self._take(segment, found)
                offset = found.end
        except DamagedFrame as error:
            self.stop = _Stop(window.name, offset, str(error))
            self._search_proof(window, offset, limit)

    def _take(self, segment: LiveSegment, found: FoundFrame) -> None:
        header = found.header
        if header.sequence <= self._last or header.sequence < segment.id.first_sequence:
            raise DamagedFrame(f"frame {header.sequence} comes after frame {self._last}")
        self._last = header.sequence
        self.proven = max(self.proven, header.durable)
        self.frames.append((StripeEnd(segment.id, found.end), header))

    def _search_proof(self, window: Window, offset: int, limit: int) -> None:
        for found in headers_in(window, offset):
            if found.header.sequence < limit:
                self.proven = max(self.proven, found.header.durable)


def recover(
    stores: Sequence[Store], found: Survey, *, log_id: int, settle: bool = False
) -> Recovered:
    """The end of the log; DamagedLog when frames that were durable are not there."""
    start = _start(found)
    scans = []
    for store, chain, end in zip(stores, found.chains, start.ends, strict=True):
        segments = _from_mark(chain, end, start)
        for segment in segments if settle else ():
            # What the mark says is durable was synced, and may be read from the cache.
            store.settle(segment.id.name, end.offset if segment is segments[0] else 0)
        _check_end(store, end, start, log_id, alone=len(stores) == 1)
        scan = _StripeScan(store, log_id=log_id, seals=found.seals)
        scan.walk(segments, end)
        scans.append(scan)
    return _merged(start, scans)


def advanced(frontier: Frontier, stripe: int, end: StripeEnd, header: FrameHeader) -> Frontier:
    """The frontier behind one more frame."""
    ends = (*frontier.ends[:stripe], end, *frontier.ends[stripe + 1 :])
    if header.sequence < frontier.sequence:  # below the floor, in a segment that is still there
        return frontier._replace(ends=ends)
    return Frontier(
        header.sequence + 1,
        header.position + header.tuples,
        max(frontier.timestamp, header.timestamp),
        ends,
    )


def _start(found: Survey) -> Frontier:
    """Where to scan from: the mark, or what stands for it."""
    mark = found.mark
    if mark is None:
        return _beginning(found.chains, found.floor)
    if not found.outranked:
        return mark.durable
    for chain, end in zip(found.chains, mark.durable.ends, strict=True):
        if not chain:
            raise _missing(end, mark.durable)
    return _beginning(found.chains, found.floor, above=mark.epoch)


def _beginning(chains: Sequence[Chain], floor: int, above: int = -1) -> Frontier:
    """The first retained segment, of an epoch that is `above`, in every stripe.

    All begin at one sequence, or below the floor.  A stripe that the first of these epochs did not
    reach has all its frames below that sequence in its last segment or before it.
    """
    firsts = [
        next((live for live in chain if live.id.epoch > above), chain[-1]) for chain in chains
    ]
    header = max(
        (first.header for first in firsts if first.id.epoch > above),
        key=lambda header: header.id.first_sequence,
    )
    sequence = max(floor, header.id.first_sequence)
    ends = tuple(StripeEnd(first.id, SEGMENT_HEADER_SIZE) for first in firsts)
    return Frontier(sequence, header.position, header.timestamp, ends)


def _from_mark(chain: Chain, end: StripeEnd, start: Frontier) -> Chain:
    for place, segment in enumerate(chain):
        if segment.id == end.segment:
            return chain[place:]
    raise _missing(end, start)


def _missing(end: StripeEnd, start: Frontier) -> DamagedLog:
    return damaged(
        f"segment {end.segment.name} is missing, though the mark says that the log is durable up "
        f"to sequence {start.sequence} in it",
        end.segment.name,
        0,
        end.segment.first_sequence,
    )


def _check_end(store: Store, end: StripeEnd, start: Frontier, log_id: int, *, alone: bool) -> None:
    """The last frame below the mark must be there: a file system may have lost the file's end."""
    name = end.segment.name
    if store.size(name) < end.offset:
        raise _lost(name, store.size(name), start.sequence, "the file ends before the mark")
    if end.offset == SEGMENT_HEADER_SIZE:
        # No frame of this segment is below the mark, so the mark cannot be beyond its start.
        if alone and start.sequence != end.segment.first_sequence:
            raise _lost(name, end.offset, start.sequence, "the mark does not fit the segment")
        return
    window = Window(store, end.segment, log_id=log_id, stop=end.offset, chunk_bytes=4096)
    try:
        place = window.locate(end.offset - 8, 8)
        length = frame_length_before(window.buffer, place + 8)
        found = window.check(end.offset - length)
    except DamagedFrame as error:
        raise _lost(name, end.offset, start.sequence, str(error)) from error
    if found.header.sequence >= start.sequence:
        raise _lost(name, found.offset, start.sequence, "the mark does not fit the segment")


def _merged(start: Frontier, scans: Sequence[_StripeScan]) -> Recovered:
    tail: list[tuple[int, StripeEnd, FrameHeader]] = sorted(
        ((stripe, *frame) for stripe, scan in enumerate(scans) for frame in scan.frames),
        key=lambda entry: entry[2].sequence,
    )
    end = start
    live = 0
    for stripe, stripe_end, header in tail:
        if header.sequence > end.sequence:
            break  # a gap: what follows was never complete, and dies by the next seal
        end = advanced(end, stripe, stripe_end, header)
        live += 1
    proven = max(start.sequence, *(scan.proven for scan in scans))
    if end.sequence < proven:
        stop = next((scan.stop for scan in scans if scan.stop), _Stop("", -1, "frames are missing"))
        raise _lost(stop.segment, stop.offset, end.sequence, stop.reason, proven)
    return Recovered(end, proven, tuple(tail[:live]), start)


def _lost(
    segment: str, offset: int, sequence: int, reason: str, proven: int | None = None
) -> DamagedLog:
    known = f"all frames below {proven} were durable" if proven else "frames there were durable"
    place = f"byte {offset}, sequence {sequence}"
    return damaged(
        f"segment {segment} is damaged at {place}: {reason}, but {known}",
        segment,
        offset,
        sequence,
    )
