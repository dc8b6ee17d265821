"""A frame: the record of one turn, there whole or not at all.

Little-endian throughout; every part is a multiple of 8 bytes, so frames follow each other
8-aligned and a lost frame can be searched for at aligned offsets only.

    offset  size  field
         0     4  magic          "RWKF"
         4     1  version        1
         5     1  flags          0
         6     2  section_count
         8     8  log_id         rejects frames of another log, and recycled blocks
        16     8  epoch          of the writer
        24     8  sequence       0, 1, 2, ... in the log
        32     8  position       of the first result tuple
        40     8  t_end          input time after the turn
        48     8  timestamp      event-time clock after the turn
        56     8  open_windows   N after the turn
        64     4  tuples         result tuples in the turn
        68     4  records        footprints in the turn
        72     8  durable        every frame with a lower sequence was durable when this was encoded
        80     4  length         of the whole frame, trailer included
        84     4  header_crc     CRC-32C of bytes 0..83
        88    8n  directory      per section: kind u8, output u8, zero u16, payload length u32
         .     .  payloads       each zero-padded to 8
      last     8  trailer        CRC-32C of everything before it, then `length` again

What always holds: `length` is believed only after `header_crc` has been checked and the caps have
been applied, so hostile bytes allocate nothing; no field is interpreted before the trailer's
checksum has been checked; the padding is zero and covered.  Any flipped bit is therefore found, and
the only error that decoding raises is `DamagedFrame`.  The repeated `length` lets a log be walked
backwards.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from rewake.log.files.layout import MAX_COUNT
from rewake.model.errors import DamagedFrame, UsageError

__all__ = [
    "FRAME_ALIGNMENT",
    "HEADER_SIZE",
    "MAGIC",
    "MAX_FRAME_BYTES",
    "MAX_SECTIONS",
    "TRAILER_SIZE",
    "Buffer",
    "Frame",
    "FrameHeader",
    "Section",
    "SectionKind",
    "TurnRecord",
    "check_body",
    "decode_frame",
    "decode_header",
    "encode_frame",
    "frame_length_before",
    "frame_parts",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = b"RWKF"
VERSION: Final = 1
FRAME_ALIGNMENT: Final = 8
MAX_FRAME_BYTES: Final = 256 << 20
MAX_SECTIONS: Final = 1024

_FIELDS: Final = Struct("<4sBBHQQQQqqQIIQI")
_HEADER: Final = Struct("<4sBBHQQQQqqQIIQII")
_ENTRY: Final = Struct("<BBHI")
_TRAILER: Final = Struct("<II")
_U32: Final = Struct("<I")
_PADDING: Final = tuple(b"\0" * size for size in range(8))
# Below this, copying pieces into one costs less than every later step does for each of them.
_SMALL_FRAME: Final = 64 << 10

HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size
MIN_FRAME_BYTES: Final = HEADER_SIZE + TRAILER_SIZE
assert HEADER_SIZE == 88
assert _FIELDS.size == HEADER_SIZE - 4


class SectionKind(IntEnum):
    """What a section of a frame holds."""

    RESULTS = 1
    OPENS = 2
    CHECKS = 3
    CLOSED = 4
    DETERMINANTS = 5
    PUNCTUATIONS = 6
    METADATA = 7
    INPUT = 8
    BATCH = 9
    PRODUCERS = 10


_KINDS: Final = {int(kind): kind for kind in SectionKind}


class Section(NamedTuple):
    """One payload of a frame; `output` is the index of the output stream it belongs to."""

    kind: SectionKind
    payload: Buffer
    output: int = 0


class TurnRecord(NamedTuple):
    """What a caller appends.  Sequence, epoch and position are the log's to give."""

    t_end: int
    timestamp: int
    open_windows: int
    tuples: int
    records: int
    sections: Sequence[Section] = ()


class FrameHeader(NamedTuple):
    """The fixed fields of a frame whose header checksum is right."""

    section_count: int
    log_id: int
    epoch: int
    sequence: int
    position: int
    t_end: int
    timestamp: int
    open_windows: int
    tuples: int
    records: int
    durable: int
    length: int


class Frame(NamedTuple):
    """A verified frame.  Section payloads are read-only views into the buffer it was read from."""

    epoch: int
    sequence: int
    position: int
    t_end: int
    timestamp: int
    open_windows: int
    tuples: int
    records: int
    durable: int
    length: int
    sections: tuple[Section, ...]
    segment: str
    offset: int

    def section(self, kind: SectionKind, output: int = 0) -> memoryview | None:
        """The payload of the first section of this kind and output, or None."""
        for section in self.sections:
            if section.kind == kind and section.output == output:
                return memoryview(section.payload)
        return None


def encode_frame(turn: TurnRecord, **place: int) -> bytes:
    """The bytes of one frame, whose pieces `frame_parts` gives."""
    return b"".join(frame_parts(turn, **place))


def frame_parts(
    turn: TurnRecord, *, log_id: int, epoch: int, sequence: int, position: int, durable: int
) -> list[bytes]:
    """The pieces of one frame, header first; large payloads are not copied.

    Raises UsageError when the turn exceeds a cap or a field's range.
    """
    t_end, timestamp, open_windows, tuples, records, sections = turn
    parts: list[bytes] = [b"", b""]
    directory = b""
    length = HEADER_SIZE + TRAILER_SIZE
    try:
        for kind, payload, output in sections:
            # What others may change, or cannot be felt as it is, is copied; nothing else is.
            content = bytes(payload) if isinstance(payload, memoryview | bytearray) else payload
            size = len(content)
            directory += _ENTRY.pack(kind, output, 0, size)
            padding = -size & 7
            length += 8 + size + padding
            parts.append(content)
            if padding:
                parts.append(_PADDING[padding])
        if length > MAX_FRAME_BYTES or len(sections) > MAX_SECTIONS:
            raise _too_large(sequence, length, len(sections))
        head = _FIELDS.pack(
            MAGIC, VERSION, 0, len(sections), log_id, epoch, sequence, position,
            t_end, timestamp, open_windows, tuples, records, durable, length,
        )  # fmt: skip
    except (ValueError, OverflowError, struct_error) as error:
        raise UsageError(
            f"turn {sequence} cannot be encoded: {error}; counts must fit 32 bits and times 64 bits"
        ) from error
    parts[0] = head + _U32.pack(crc32c(head))
    parts[1] = directory
    if length < _SMALL_FRAME:
        parts = [b"".join(parts)]
    crc = 0
    for part in parts:
        crc = extend_crc32c(crc, part)
    parts.append(_TRAILER.pack(crc, length))
    return parts


def decode_header(buffer: bytes, offset: int = 0) -> FrameHeader:
    """The header at `offset`, verified: its `length` and `section_count` are within the caps."""
    if offset < 0 or len(buffer) - offset < HEADER_SIZE:
        raise DamagedFrame("there is no room for a frame header")
    magic, version, flags, section_count, *fields, length, header_crc = _HEADER.unpack_from(
        buffer, offset
    )
    if magic != MAGIC:
        raise DamagedFrame("no frame begins there")
    if crc32c(buffer[offset : offset + HEADER_SIZE - 4]) != header_crc:
        raise DamagedFrame("the header of a frame fails its checksum")
    if version != VERSION or flags != 0:
        raise DamagedFrame(f"a frame has unknown version {version}.{flags}")
    least = MIN_FRAME_BYTES + section_count * _ENTRY.size
    if section_count > MAX_SECTIONS or not least <= length <= MAX_FRAME_BYTES or length & 7:
        raise DamagedFrame(f"a frame states an impossible length of {length}")
    header = FrameHeader._make((section_count, *fields, length))
    if max(header.epoch, header.sequence, header.position, header.durable) > MAX_COUNT:
        raise DamagedFrame("a frame states impossible numbers")
    return header


def check_body(buffer: bytes, offset: int, header: FrameHeader) -> None:
    """Verify everything behind a header that `decode_header` has found at `offset`."""
    end = offset + header.length
    if end > len(buffer):
        raise DamagedFrame("a frame is cut off before its end")
    crc, length = _TRAILER.unpack_from(buffer, end - TRAILER_SIZE)
    if length != header.length or crc32c(buffer[offset : end - TRAILER_SIZE]) != crc:
        raise DamagedFrame("a frame fails its checksum")


def decode_frame(
    buffer: bytes,
    offset: int = 0,
    header: FrameHeader | None = None,
    *,
    segment: str = "",
    base: int = 0,
) -> Frame:
    """The verified frame at `offset` of a buffer that was read from byte `base` of `segment`."""
    header = header or decode_header(buffer, offset)
    check_body(buffer, offset, header)
    sections = _decode_sections(buffer, offset, header)
    return Frame(*header[2:], sections, segment, base + offset)


def frame_length_before(buffer: bytes, end: int) -> int:
    """The length that the trailer ending at `end` states: a claim, to be checked by decoding."""
    if end < TRAILER_SIZE or end > len(buffer):
        raise DamagedFrame("there is no room for a frame trailer")
    length: int = _U32.unpack_from(buffer, end - 4)[0]
    if not MIN_FRAME_BYTES <= length <= MAX_FRAME_BYTES or length & 7:
        raise DamagedFrame(f"the trailer of a frame states an impossible length of {length}")
    return length


def _decode_sections(buffer: bytes, offset: int, header: FrameHeader) -> tuple[Section, ...]:
    view = memoryview(buffer)
    entry = offset + HEADER_SIZE
    start = entry + header.section_count * _ENTRY.size
    end = offset + header.length - TRAILER_SIZE
    sections = []
    for kind, output, reserved, size in _ENTRY.iter_unpack(view[entry:start]):
        stop = start + size
        if kind not in _KINDS or reserved or stop > end:
            raise DamagedFrame(f"a frame has an impossible section ({kind})")
        sections.append(Section(_KINDS[kind], view[start:stop], output))
        start = stop + (-size & 7)
    if start != end:
        raise DamagedFrame("the sections of a frame do not fill it")
    return tuple(sections)


def _too_large(sequence: int, length: int, sections: int) -> UsageError:
    return UsageError(
        f"turn {sequence} would be a frame of {length} bytes in {sections} sections; the limits "
        f"are {MAX_FRAME_BYTES} bytes and {MAX_SECTIONS} sections: deliver smaller stream events"
    )
