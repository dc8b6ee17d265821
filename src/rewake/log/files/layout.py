"""What a log's folder holds, and what its files are called.

    LOG                          descriptor: identity, name, metadata, number of stripes
    STRIPE                       in every stripe but the first: whose stripe it is
    epoch-<epoch>                a writer's claim to the log; its content says who
    mark                         how far the log is durable (two slots)
    floor                        the first sequence that is retained
    segment-<first>-<epoch>.log  frames from sequence <first>, by the writer of <epoch>
    segment-<first>-<epoch>.idx  a sparse index of that segment

Numbers are written with 20 digits, so that names sort as numbers do.  A name ending in `.tmp` is a
draft that was never published.  `LOG`, claims, `mark` and `floor` live in the first stripe.
"""

import re
from typing import Final, NamedTuple

__all__ = [
    "DESCRIPTOR",
    "DRAFT_SUFFIX",
    "FLOOR",
    "MARK",
    "MAX_COUNT",
    "STRIPE",
    "SegmentId",
    "claim_epoch",
    "claim_name",
    "segment_id",
]

DESCRIPTOR: Final = "LOG"
STRIPE: Final = "STRIPE"
MARK: Final = "mark"
FLOOR: Final = "floor"
DRAFT_SUFFIX: Final = ".tmp"

# Epochs, sequences and positions stay below this, so that sums of them fit 64 bits.
MAX_COUNT: Final = (1 << 62) - 1

_SEGMENT: Final = re.compile(r"segment-([0-9]{20})-([0-9]{20})\.log\Z")
_CLAIM: Final = re.compile(r"epoch-([0-9]{20})\Z")


class SegmentId(NamedTuple):
    """Which segment: no frame in it has a sequence below `first_sequence`.

    Unique within a stripe, because an epoch has one writer and it opens segments in order.
    """

    first_sequence: int
    epoch: int

    @property
    def name(self) -> str:
        """The name of the segment's file."""
        return f"segment-{self.first_sequence:020d}-{self.epoch:020d}.log"

    @property
    def index_name(self) -> str:
        """The name of the segment's index."""
        return f"segment-{self.first_sequence:020d}-{self.epoch:020d}.idx"


def segment_id(name: str) -> SegmentId | None:
    """The segment that a file name stands for, or None when it is not a segment's."""
    match = _SEGMENT.match(name)
    if match is None or max(int(match[1]), int(match[2])) > MAX_COUNT:
        return None
    return SegmentId(int(match[1]), int(match[2]))


def claim_name(epoch: int) -> str:
    """The file whose presence says that the writer of `epoch` has not been superseded."""
    return f"epoch-{epoch:020d}"


def claim_epoch(name: str) -> int | None:
    """The epoch that a file name claims, or None when it is not a claim."""
    match = _CLAIM.match(name)
    return int(match[1]) if match and int(match[1]) <= MAX_COUNT else None
