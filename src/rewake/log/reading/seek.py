"""Finding where to begin: segment headers first, then the sparse index, then a short walk.

Whatever the index says is checked against the frame it points to.  A wrong or missing index costs
time, never correctness.
"""

from collections.abc import Callable
from typing import NamedTuple

from rewake.log.files.index import IndexEntry, read_index
from rewake.log.files.mark import StripeEnd
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import Frame
from rewake.log.reading.chain import LiveSegment
from rewake.log.reading.scan import Window
from rewake.log.reading.view import Viewer
from rewake.model.errors import DamagedFrame, OutOfRange

__all__ = ["Place", "place_of", "stripe_place"]

INDEXED_CHUNK_BYTES = 64 << 10


class Place(NamedTuple):
    """Begin at `sequence` and go on while a frame still comes `before` what was asked for."""

    sequence: int
    before: Callable[[Frame], bool]


def place_of(
    viewer: Viewer,
    *,
    sequence: int | None = None,
    position: int | None = None,
    timestamp: int | None = None,
) -> Place:
    """Where to begin for a sequence, a position or a timestamp; OutOfRange when it is not there."""
    if position is not None:
        return _place_of_position(viewer, position)
    if timestamp is not None:
        return _place_of_timestamp(viewer, timestamp)
    view = viewer.view
    wanted = view.floor if sequence is None else sequence
    _check_range("sequence", wanted, view.floor, view.frontier.sequence)
    return Place(wanted, lambda frame: frame.sequence < wanted)


def stripe_place(viewer: Viewer, stripe: int, sequence: int) -> StripeEnd:
    """In one stripe, a place from which no frame with `sequence` or higher is missed."""
    segments = viewer.view.visible(stripe)
    chosen = segments[0]
    for segment in segments:
        if segment.id.first_sequence <= sequence:
            chosen = segment
    if sequence == chosen.id.first_sequence:
        return StripeEnd(chosen.id, SEGMENT_HEADER_SIZE)
    entry = _last_entry(viewer, stripe, chosen, lambda entry: entry.sequence <= sequence)
    return StripeEnd(chosen.id, entry.offset)


def _place_of_position(viewer: Viewer, position: int) -> Place:
    view = viewer.view
    _check_range("position", position, view.first_position, view.frontier.position)
    start = _lower_bound(viewer, lambda entry: entry.position <= position)
    return Place(start, lambda frame: frame.position + frame.tuples <= position)


def _place_of_timestamp(viewer: Viewer, timestamp: int) -> Place:
    view = viewer.view
    if view.floor and timestamp <= view.first_timestamp:
        raise OutOfRange(
            f"timestamp {timestamp} is no longer in the log: the first retained frame is "
            f"{view.floor}, after timestamp {view.first_timestamp}"
        )
    start = _lower_bound(viewer, lambda entry: entry.timestamp < timestamp)
    return Place(start, lambda frame: frame.timestamp < timestamp)


def _lower_bound(viewer: Viewer, early: Callable[[IndexEntry], bool]) -> int:
    """A sequence before which every frame of every stripe is too early.

    An entry tells of all stripes: positions and running timestamps count over the whole log.
    """
    best = viewer.view.floor
    for stripe in range(len(viewer.view.frontier.ends)):
        chosen = None
        for segment in viewer.view.visible(stripe):
            if early(_first_entry(segment)):
                chosen = segment
        if chosen is not None:
            best = max(best, _last_entry(viewer, stripe, chosen, early).sequence)
    return best


def _first_entry(segment: LiveSegment) -> IndexEntry:
    header = segment.header
    return IndexEntry(
        header.id.first_sequence, header.position, header.timestamp, SEGMENT_HEADER_SIZE
    )


def _last_entry(
    viewer: Viewer, stripe: int, segment: LiveSegment, early: Callable[[IndexEntry], bool]
) -> IndexEntry:
    """The last entry of the segment that is early and whose frame is really there."""
    assert segment.end is not None
    store, log_id = viewer.stores[stripe], viewer.log_id
    entries = read_index(store, segment.id, log_id=log_id, end=segment.end)
    for entry in reversed([entry for entry in entries if early(entry)]):
        window = Window(
            store, segment.id, log_id=log_id, stop=segment.end, chunk_bytes=INDEXED_CHUNK_BYTES
        )
        try:
            header = window.check(entry.offset).header
        except DamagedFrame:
            continue
        if (header.sequence, header.position) == (entry.sequence, entry.position):
            return entry
    return _first_entry(segment)


def _check_range(what: str, asked: int, first: int, end: int) -> None:
    if not first <= asked <= end:
        raise OutOfRange(
            f"{what} {asked} is not in the log: the first available is {first} and the log ends "
            f"at {end}"
        )
