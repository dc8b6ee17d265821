"""What a log's folders say before a frame is read: one rule for writers, readers and inspection.

A log has a valid mark from its creation on: its first one says that there is no segment yet.  The
next one, an anchor, is synced before the first frame can be appended.  So a mark that cannot be
read is damage, and so is a first mark beside anything that only a begun log has.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rewake.log.files.descriptor import Descriptor
from rewake.log.files.floor import read_floor
from rewake.log.files.layout import MARK, segment_id
from rewake.log.files.mark import Mark, read_mark
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.reading.chain import Chain, Seals, load_chains
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["Survey", "believed_mark", "survey"]


class Survey(NamedTuple):
    """The mark (None: no writer has come as far as its own), the floor, segments and seals."""

    mark: Mark | None
    floor: int
    chains: tuple[Chain, ...]
    seals: Seals

    @property
    def empty(self) -> bool:
        """Whether no writer ever came as far as its first mark, so none has appended anything."""
        return self.mark is None and not all(self.chains)


def survey(stores: Sequence[Store], descriptor: Descriptor) -> Survey:
    """Look at the log; DamagedLog when what is there does not fit together."""
    # The mark is read first: the segments it names were published before it was written.
    log_id = descriptor.log_id
    mark = read_mark(stores[0], log_id=log_id, stripes=len(stores))
    floor = read_floor(stores[0], log_id=log_id)
    chains, seals = load_chains(stores, log_id=log_id, floor=floor)
    return Survey(believed_mark(stores, mark, floor), floor, chains, seals)


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
    raise DamagedLog(
        f"the durable mark is that of a new log, but {evidence}; restore the file `{MARK}` from "
        "the same copy as the rest, or see what can be saved with `rewake inspect log PATH`",
        segment=MARK,
        offset=0,
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
