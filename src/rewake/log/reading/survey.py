"""What a log's folders say before a frame is read: one rule for writers, readers and inspection.

A log has a valid mark from its creation on: its first one says that there is no segment yet.  The
next one, an anchor, is synced before the first frame can be appended.  So a mark that cannot be
read is damage, and so is a first mark beside anything that only a begun log has.

A mark beyond the seal of a later epoch is outranked: a writer went back, and died before its own
mark was durable, or a fenced writer wrote over that one.  The log begins at that seal then as if
the mark were there.  A seal without a mark is made durable before anyone goes by it, so that power
loss cannot bring back what was seen to be taken back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rewake.log.files.damage import damaged
from rewake.log.files.descriptor import Descriptor
from rewake.log.files.floor import read_floor
from rewake.log.files.layout import MARK, segment_id
from rewake.log.files.mark import Mark, read_mark
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.reading.chain import Chain, Seals, load_chains
from rewake.log.store import Store

__all__ = ["Survey", "believed_mark", "survey"]


class Survey(NamedTuple):
    """The mark (None: no writer has come as far as its own), the floor, segments and seals.

    `outranked`: a later epoch has sealed the log below the mark, which counts no more.
    """

    mark: Mark | None
    floor: int
    chains: tuple[Chain, ...]
    seals: Seals
    outranked: bool = False

    @property
    def empty(self) -> bool:
        """Whether no writer ever came as far as its first mark, so none has appended anything."""
        return self.mark is None and not all(self.chains)

    @property
    def completed(self) -> int:
        """Frames below this were complete, by the mark as far as it counts."""
        if self.mark is None:
            return 0
        return min(self.mark.completed.sequence, self.seals.limit(self.mark.epoch))


def survey(stores: Sequence[Store], descriptor: Descriptor) -> Survey:
    """Look at the log; DamagedLog when what is there does not fit together."""
    # The mark is read first: the segments it names were published before it was written.
    log_id = descriptor.log_id
    mark = read_mark(stores[0], log_id=log_id, stripes=len(stores))
    floor = read_floor(stores[0], log_id=log_id)
    chains, seals = load_chains(stores, log_id=log_id, floor=floor)
    believed = believed_mark(stores, mark, floor)
    if believed is None:
        return Survey(believed, floor, chains, seals)
    if any(chain and chain[-1].id.epoch > believed.epoch for chain in chains):
        for store in stores:
            store.sync_directory()
    return Survey(believed, floor, chains, seals, _is_outranked(believed, chains, seals))


def _is_outranked(mark: Mark, chains: Sequence[Chain], seals: Seals) -> bool:
    """Whether a later epoch has sealed the log below the mark, or just there and without it.

    The latter is the mark of a writer that was succeeded while it opened the log: its segments are
    empty, and its successor, which had no mark of it, has left them out.
    """
    limit = seals.limit(mark.epoch)
    if mark.durable.sequence != limit:
        return mark.durable.sequence > limit
    return not all(
        any(live.id == end.segment for live in chain)
        for chain, end in zip(chains, mark.durable.ends, strict=True)
    )


def believed_mark(stores: Sequence[Store], mark: Mark, floor: int) -> Mark | None:
    """The mark; None for the first one of a log in which nothing was ever appended."""
    if not mark.is_first:
        return mark
    evidence = _begun(stores, floor)
    if not evidence:
        return None
    # A writer may have begun meanwhile; its own mark came before its first frame.
    mark = read_mark(stores[0], log_id=mark.log_id, stripes=len(stores))
    if not mark.is_first:
        return mark
    raise damaged(
        f"the durable mark is that of a new log, but {evidence}",
        MARK,
        0,
        remedy=f"restore the file `{MARK}` from the same copy as the rest, or ",
    )


def _begun(stores: Sequence[Store], floor: int) -> str:
    """What shows that frames were appended, in words; empty when nothing does."""
    if floor:
        return f"frames below {floor} were trimmed"
    for store in stores:
        for name in store.names():
            segment = segment_id(name)
            if segment is None:
                continue
            if segment.first_sequence or store.size(name) > SEGMENT_HEADER_SIZE:
                return f"segment {name} holds or follows frames"
    return ""
