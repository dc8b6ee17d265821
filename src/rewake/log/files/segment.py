"""The header of a segment: where it stands in its stripe's chain, and what it seals.

    offset  size  field
         0     4  magic           "RWKG"
         4     2  version         1
         6     2  stripe
         8     8  log_id
        16     8  epoch           of the one writer that may append here
        24     8  first_sequence  no frame here has a lower one
        32     8  position        of the first result tuple at or after first_sequence
        40     8  timestamp       the highest of all frames before first_sequence
        48     8  seal            frames of older epochs with sequence >= seal are dead
        56     8  previous_first  the segment before this one in the stripe: its first sequence
        64     8  previous_epoch  and its epoch
        72     8  previous_end    its live bytes end here; 0: this is the stripe's first segment
        80     4  tag             drawn by chance when its writer opened the log
        84     4  crc             CRC-32C of bytes 0..83

Segments are published whole (draft, sync, rename, directory sync), so a header that fails its
checksum is damage, never a torn write.  The header names its predecessor and where that one's live
bytes end: a segment that is missing or too short shows without reading a frame, and whatever a
fenced writer still adds behind that end is never read.

The tag tells apart two writers of one epoch: of a log and of a copy of it (see `lineage`).
"""

from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from rewake.log.files.damage import damaged
from rewake.log.files.layout import MAX_COUNT, SegmentId
from rewake.log.store import Store
from rewake.model.errors import DamagedLog

__all__ = ["SEGMENT_HEADER_SIZE", "SegmentHeader", "read_segment_header"]

_MAGIC: Final = b"RWKG"
_VERSION: Final = 1
_CRC: Final = Struct("<I")
_HEADER: Final = Struct("<4sHHQQQQqQQQQII")
_FIELDS: Final = Struct("<4sHHQQQQqQQQQI")
SEGMENT_HEADER_SIZE: Final = _HEADER.size
assert SEGMENT_HEADER_SIZE == 88


class SegmentHeader(NamedTuple):
    """What a segment says about itself and about the one before it."""

    log_id: int
    stripe: int
    id: SegmentId
    position: int
    timestamp: int
    seal: int
    previous: SegmentId | None
    previous_end: int
    tag: int = 0

    def encode(self) -> bytes:
        """The bytes at the start of the segment."""
        first_sequence, epoch = self.id
        previous_first, previous_epoch = self.previous or (0, 0)
        head = _FIELDS.pack(
            _MAGIC, _VERSION, self.stripe, self.log_id, epoch, first_sequence, self.position,
            self.timestamp, self.seal, previous_first, previous_epoch, self.previous_end, self.tag,
        )  # fmt: skip
        return head + _CRC.pack(crc32c(head))


def read_segment_header(
    store: Store, segment: SegmentId, *, stripe: int, log_id: int
) -> SegmentHeader:
    """The header of `segment`, checked against its name, stripe and log; DamagedLog otherwise."""
    data = store.read(segment.name, 0, SEGMENT_HEADER_SIZE)
    if len(data) < SEGMENT_HEADER_SIZE:
        raise _damaged(segment, f"its header is cut off at byte {len(data)}")
    if crc32c(data[: _FIELDS.size]) != int.from_bytes(data[_FIELDS.size :], "little"):
        raise _damaged(segment, "its header fails its checksum")
    (
        magic, version, found_stripe, found_id, epoch, first_sequence, position,
        timestamp, seal, previous_first, previous_epoch, previous_end, tag, _,
    ) = _HEADER.unpack(data)  # fmt: skip
    if magic != _MAGIC or version != _VERSION:
        raise _damaged(segment, "it does not begin as a segment of this format")
    named = (first_sequence, epoch) == (segment.first_sequence, segment.epoch)
    if found_id != log_id or not named:
        raise _damaged(segment, f"it is segment {first_sequence} of epoch {epoch} of another log")
    if found_stripe != stripe:
        raise _damaged(segment, f"it belongs to stripe {found_stripe}, not to stripe {stripe}")
    if max(position, seal, previous_first, previous_epoch, previous_end) > MAX_COUNT:
        raise _damaged(segment, "its header states impossible numbers")
    previous = SegmentId(previous_first, previous_epoch) if previous_end else None
    return SegmentHeader(
        log_id, stripe, segment, position, timestamp, seal, previous, previous_end, tag
    )


def _damaged(segment: SegmentId, reason: str) -> DamagedLog:
    return damaged(
        f"segment {segment.name} is damaged: {reason}", segment.name, 0, segment.first_sequence
    )
