"""The log of one partition: creating it, reading it, and becoming its one writer.

What always holds:

- A frame that was completed is never lost, changed, repeated or reordered; there are no phantoms.
- One writer: `open_for_append` claims an epoch first, only then reads where the log ends, and then
  begins a new segment in every stripe, whose header seals what came before.  It never appends to a
  predecessor's segment, so whatever a fenced writer still adds is never read.
- Opening changes nothing that a reader sees, and may be killed anywhere and repeated.
- Only going back (`back_to`) takes frames out of the log, and none that was taken out ever comes
  back.  It is done when the first new segment is published, whatever dies then; before, it is not.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rewake.log.back import frontier_before, refuse_trimmed
from rewake.log.files.claims import claim, owns, publish_as_owner
from rewake.log.files.descriptor import (
    Descriptor,
    Metadata,
    publish_descriptor,
    read_descriptor,
    refuse_begun,
)
from rewake.log.files.floor import read_floor
from rewake.log.files.layout import DESCRIPTOR, DRAFT_SUFFIX, MARK, SegmentId, segment_id
from rewake.log.files.mark import MIN_TIMESTAMP, Frontier, Mark, StripeEnd, first_marks
from rewake.log.files.segment import SEGMENT_HEADER_SIZE, SegmentHeader
from rewake.log.reading.reader import LogReader
from rewake.log.reading.survey import survey
from rewake.log.recover import recover
from rewake.log.store import Store, publish
from rewake.model.errors import (
    DamagedLog,
    Fenced,
    LogExists,
    LogInUse,
    OutOfRange,
)

__all__ = ["AppendPoint", "Log"]

_EMPTY: Final = Frontier(0, 0, MIN_TIMESTAMP, ())


@dataclass(frozen=True, slots=True)
class AppendPoint:
    """Where a writer goes on: all that `WritePipeline` needs.

    `frontier` is the recovered end of the log; its stripe ends lie in this epoch's new segments.
    `generation` and `anchors` are those of the last mark; `tag` goes into its segments' headers.
    """

    descriptor: Descriptor
    epoch: int
    frontier: Frontier
    generation: int
    anchors: int
    tag: int = 0

    @property
    def seal(self) -> int:
        """The first sequence of this epoch."""
        return self.frontier.ends[0].segment.first_sequence


class Log:
    """The operations on a log; the stores of its stripes are the only handle there is."""

    @staticmethod
    def create(
        stores: Store | Sequence[Store], name: str, *, log_id: int, metadata: Metadata | None = None
    ) -> Descriptor:
        """Create an empty log.  Killed half-way, it leaves no log, and can be repeated."""
        stores = as_stores(stores)
        descriptor = Descriptor(log_id, name, len(stores), dict(metadata or {}))
        if not stores[0].try_lock():
            raise LogInUse("another process is creating or writing a log here; wait for it")
        try:
            if DESCRIPTOR in stores[0].names():
                raise LogExists("a log is already here; open it, or choose another place")
            for store in stores:
                refuse_begun(store)
            publish(stores[0], MARK, first_marks(log_id=log_id, stripes=len(stores)))
            publish_descriptor(stores, descriptor)
        finally:
            stores[0].unlock()
        return descriptor

    @staticmethod
    def open_reader(stores: Store | Sequence[Store]) -> LogReader:
        """A reader of all that is known to be complete."""
        return LogReader(as_stores(stores))

    @staticmethod
    def open_for_append(
        stores: Store | Sequence[Store],
        *,
        epoch: int | None = None,
        holder: str = "unnamed",
        tag: int = 0,
        back_to: int | None = None,
    ) -> AppendPoint:
        """Become the log's writer; see `claims` for what `epoch` means, `segment` for `tag`.

        With `back_to`, frames from that sequence on are not part of the log any more.  OutOfRange
        when it is beyond the end or was trimmed.  If this is killed or fenced, they may be taken
        back or not: whoever wants it repeats it.
        """
        stores = as_stores(stores)
        descriptor = read_descriptor(stores)
        if back_to is not None:  # before anybody is fenced for nothing
            refuse_trimmed(back_to, read_floor(stores[0], log_id=descriptor.log_id))
        owned = claim(stores[0], epoch=epoch, above=_highest_epoch(stores), holder=holder)
        _delete_drafts(stores)
        # A predecessor may have died before it synced its last anchor: of two, one must be safe.
        with suppress(FileNotFoundError):  # refused below, by name
            stores[0].settle(MARK)
        try:
            end, mark = _recovered_end(stores, descriptor, back_to)
        except (DamagedLog, FileNotFoundError) as error:
            if owns(stores[0], owned):
                raise
            raise Fenced(f"epoch {owned} was superseded while it opened the log") from error
        point = _begin_segments(stores, descriptor, (owned, tag), end, mark)
        _write_anchor(stores[0], point)
        return point


def as_stores(stores: Store | Sequence[Store]) -> Sequence[Store]:
    """The stripes, in order; a single store is a log with one stripe."""
    return tuple(stores) if isinstance(stores, Sequence) else (stores,)


def _highest_epoch(stores: Sequence[Store]) -> int:
    segments = (segment_id(name) for store in stores for name in store.names())
    return max((segment.epoch for segment in segments if segment is not None), default=-1)


def _recovered_end(
    stores: Sequence[Store], descriptor: Descriptor, back_to: int | None
) -> tuple[Frontier, Mark | None]:
    log_id = descriptor.log_id
    found = survey(stores, descriptor)
    if found.empty:
        if back_to:
            raise OutOfRange(f"the log cannot go back to frame {back_to}: it has no frame yet")
        return _EMPTY, None
    recovered = recover(stores, found, log_id=log_id, settle=True)
    if back_to is None:
        return recovered.end, found.mark
    return frontier_before(stores, found, recovered, back_to, log_id=log_id), found.mark


def _delete_drafts(stores: Sequence[Store]) -> None:
    for store in stores:
        for name in store.names():
            if name.endswith(DRAFT_SUFFIX):
                store.delete(name)


def _begin_segments(
    stores: Sequence[Store],
    descriptor: Descriptor,
    writer: tuple[int, int],
    end: Frontier,
    mark: Mark | None,
) -> AppendPoint:
    """Seal the log at `end`: a new, empty segment in every stripe, durable before any append."""
    epoch, tag = writer
    segment = SegmentId(end.sequence, epoch)
    for stripe, store in enumerate(stores):
        previous = end.ends[stripe] if end.ends else None
        header = SegmentHeader(
            log_id=descriptor.log_id,
            stripe=stripe,
            id=segment,
            position=end.position,
            timestamp=end.timestamp,
            seal=end.sequence,
            previous=previous.segment if previous else None,
            previous_end=previous.offset if previous else 0,
            tag=tag,
        )
        publish_as_owner(stores[0], epoch, segment.name, header.encode(), into=store)
    ends = (StripeEnd(segment, SEGMENT_HEADER_SIZE),) * len(stores)
    generation, anchors = (mark.generation, mark.anchors) if mark else (0, 0)
    return AppendPoint(descriptor, epoch, end._replace(ends=ends), generation, anchors + 1, tag)


def _write_anchor(store: Store, point: AppendPoint) -> None:
    mark = Mark(
        log_id=point.descriptor.log_id,
        epoch=point.epoch,
        generation=point.generation,
        anchors=point.anchors,
        durable=point.frontier,
        completed=point.frontier,
    )
    store.write(MARK, mark.slot(anchor=True), (mark.encode(),))
    store.sync(MARK)
