"""Going back: where a log ends when the frames from a sequence on are taken back.

Nothing is deleted or overwritten for it.  A writer that goes back begins new segments, as every
writer does, but their headers seal the log at an earlier frame than its last.  From the moment when
the first of them is published, the frames behind the seal are not part of the log any more: the
seal counts more than any older mark, index or segment (see `survey` and `chain`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from rewake.log.files.damage import damaged, missing_frame
from rewake.log.files.mark import Frontier, StripeEnd
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import FrameHeader
from rewake.log.reading.chain import LiveSegment
from rewake.log.reading.scan import Window, frames_in
from rewake.log.reading.survey import Survey
from rewake.log.recover import Recovered
from rewake.log.store import Store
from rewake.model.errors import DamagedFrame, OutOfRange

__all__ = ["frontier_before", "refuse_trimmed"]


class _Walked(NamedTuple):
    """In one stripe: where its frames below a sequence end, and the first frame behind them."""

    end: StripeEnd
    timestamp: int
    behind: FrameHeader | None


def refuse_trimmed(sequence: int, floor: int) -> None:
    """Raise OutOfRange when a log whose first retained frame is `floor` cannot go back so far."""
    if sequence < floor:
        raise OutOfRange(
            f"the log cannot go back to frame {sequence}: frames below {floor} were trimmed; go "
            f"back to {floor} or later"
        )


def frontier_before(
    stores: Sequence[Store], found: Survey, recovered: Recovered, sequence: int, *, log_id: int
) -> Frontier:
    """The frontier before `sequence`, in a log that was just recovered; OutOfRange beyond its end.

    Each stripe ends in the last of its segments that begins at `sequence` or below it: so every
    segment that an older mark names, if that mark counts still, stays in the chain.
    """
    refuse_trimmed(sequence, found.floor)
    if sequence > recovered.end.sequence:
        raise OutOfRange(
            f"the log cannot go back to frame {sequence}: it ends at {recovered.end.sequence}"
        )
    if sequence >= recovered.start.sequence:
        return recovered.frontier_at(sequence)
    walked = [
        _walk(store, _last_before(chain, sequence, end), sequence, log_id)
        for store, chain, end in zip(stores, found.chains, recovered.end.ends, strict=True)
    ]
    behind = [each.behind for each in walked if each.behind is not None]
    position = next((each.position for each in behind if each.sequence == sequence), None)
    if position is None:
        raise missing_frame(walked[0].end.segment.name, sequence)
    return Frontier(
        sequence,
        position,
        max(each.timestamp for each in walked),
        tuple(each.end for each in walked),
    )


def _last_before(chain: Sequence[LiveSegment], sequence: int, last: StripeEnd) -> LiveSegment:
    """The last segment that begins at `sequence` or below it, as far as the log goes there."""
    chosen = chain[0]
    for live in chain:
        if live.id.first_sequence <= sequence:
            chosen = live
    if chosen.id == last.segment:
        return chosen._replace(end=last.offset)
    return chosen._replace(end=SEGMENT_HEADER_SIZE) if chosen.end is None else chosen


def _walk(store: Store, segment: LiveSegment, sequence: int, log_id: int) -> _Walked:
    """From the segment's beginning, by its frames: an index is not believed."""
    name = segment.id.name
    assert segment.end is not None
    window = Window(store, segment.id, log_id=log_id, stop=segment.end)
    offset, timestamp = SEGMENT_HEADER_SIZE, segment.header.timestamp
    try:
        for header, begin in frames_in(window, offset):
            if header.sequence >= sequence:
                return _Walked(StripeEnd(segment.id, begin), timestamp, header)
            offset = begin + header.length
            timestamp = max(timestamp, header.timestamp)
    except DamagedFrame as error:
        raise damaged(
            f"segment {name} is damaged at byte {offset}, before frame {sequence}: {error}",
            name,
            offset,
            sequence,
        ) from error
    return _Walked(StripeEnd(segment.id, offset), timestamp, None)
