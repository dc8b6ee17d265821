"""What may go: only what nobody needs, and only as the user says.

A log is trimmed by whole segments.  The floor (the first retained sequence) rises to the beginning
of a segment; it is published durably before anything is deleted, then segments below it go, oldest
first, each made durable before the next.  Killed anywhere, the trim leaves segments below the floor
that nobody reads; the next one removes them.  Segments that were taken back as a whole go, too,
wherever they are: only a reader that has not noticed yet may miss them.

The floor never passes what a consumer or recovery still needs, nor the segments that the last
anchor names (see `mark`): after power loss recovery begins there.  So the newest segment stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from rewake.log.files.floor import publish_floor
from rewake.log.files.layout import SegmentId, segment_id
from rewake.log.files.mark import MIN_TIMESTAMP, read_mark
from rewake.log.files.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.log.reading.chain import Chain, Seals
from rewake.log.reading.view import View, Viewer
from rewake.log.store import Store
from rewake.model.stream_event import TIME_LIMIT, told_by

__all__ = ["KEEP_NOTHING", "Retention", "Trimmed", "floor_for", "trim"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history to keep beyond what is needed; by default all of it.

    A segment may go when it is older than `max_age` (in units of the stream's timestamps) or when
    more than `max_bytes` are kept.  `Retention(max_bytes=0)` keeps only what is needed.
    """

    max_age: int | None = None
    max_bytes: int | None = None

    def release(self, *, age: int, kept_bytes: int) -> bool:
        """Whether a segment of this age may go while this much is kept."""
        too_old = self.max_age is not None and age > self.max_age
        too_much = self.max_bytes is not None and kept_bytes > self.max_bytes
        return too_old or too_much


# Only what somebody needs.
KEEP_NOTHING: Final = Retention(max_bytes=0)


class Trimmed(NamedTuple):
    """What a trim did."""

    floor: int
    segments: int
    bytes: int


def floor_for(view: View, needed: int | None, retention: Retention, *, anchored: int) -> int:
    """The highest floor that is allowed; `anchored` is the highest that the anchor allows."""
    highest = anchored if needed is None else min(anchored, needed)
    kept = sum(_live_bytes(view, stripe) for stripe in range(len(view.chains)))
    floor, latest, freed = view.floor, _latest_time(view), 0
    for header, size in _candidates(view):
        if header.id.first_sequence > highest:
            break
        freed += size
        # Of what has no time nobody knows the age; it goes with the first behind it that is old.
        untimed = told_by(header.timestamp) is None
        age = 0 if untimed else latest - header.timestamp
        if retention.release(age=age, kept_bytes=kept):
            floor = header.id.first_sequence
            kept, freed = kept - freed, 0
        elif not untimed:
            break
    return floor


def _latest_time(view: View) -> int:
    """The latest time of the stream, or one before it: its end is no time, and ages nothing."""
    if view.frontier.timestamp < TIME_LIMIT:
        return view.frontier.timestamp
    headers = (each.header for stripe in range(len(view.chains)) for each in view.visible(stripe))
    known = [each.timestamp for each in headers if each.timestamp < TIME_LIMIT]
    return max(known, default=MIN_TIMESTAMP)


def trim(
    stores: Sequence[Store], needed: int | None, retention: Retention, *, epoch: int | None = None
) -> Trimmed:
    """Delete what may go: nothing from the sequence `needed` on.  One trimmer at a time: the owner.

    With its `epoch`, Fenced when it is the owner no more: what it would trim, a successor may have
    gone back to.
    """
    viewer = Viewer(stores, adopt=False)
    view, log_id = viewer.view, viewer.log_id
    anchor = read_mark(stores[0], log_id=log_id, stripes=len(stores), anchors_only=True)
    if anchor.is_first:
        return Trimmed(view.floor, 0, 0)
    anchored = min(end.segment.first_sequence for end in anchor.durable.ends)
    floor = floor_for(view, needed, retention, anchored=anchored)
    if floor > view.floor:
        publish_floor(stores[0], log_id=log_id, sequence=floor, epoch=epoch)
    segments = size = 0
    for store, chain in zip(stores, view.chains, strict=True):
        for segment in _doomed(store, chain, floor, view.seals):
            size += _delete(store, segment)
            segments += 1
    return Trimmed(floor, segments, size)


def _live_bytes(view: View, stripe: int) -> int:
    return sum((segment.end or 0) - SEGMENT_HEADER_SIZE for segment in view.visible(stripe))


def _candidates(view: View) -> Iterator[tuple[SegmentHeader, int]]:
    """Every possible floor in ascending order, with the bytes that raising it there frees."""
    steps = []
    for stripe in range(len(view.chains)):
        segments = view.visible(stripe)
        for segment, following in pairwise(segments):
            freed = (segment.end or 0) - SEGMENT_HEADER_SIZE
            if following.id.first_sequence > view.floor:
                steps.append((following.header, freed))
    yield from sorted(steps, key=lambda step: step[0].id.first_sequence)


def _doomed(store: Store, chain: Chain, floor: int, seals: Seals) -> list[SegmentId]:
    """The segment files below the floor, and those that are not part of the log any more."""
    kept = {segment.id for segment in chain}
    for segment, following in pairwise(chain):
        if following.id.first_sequence <= floor:
            kept.discard(segment.id)
    found = (segment_id(name) for name in store.names())
    return sorted(
        segment
        for segment in found
        if segment is not None
        and segment not in kept
        and (segment.first_sequence < floor or segment.first_sequence > seals.limit(segment.epoch))
    )


def _delete(store: Store, segment: SegmentId) -> int:
    size = store.size(segment.name)
    store.delete(segment.name)
    if segment.index_name in store.names():
        store.delete(segment.index_name)
    store.sync_directory()
    return size
