"""Making checksums right again.

A checksum stops a fuzzer at the door: behind it are the fields that a bug, not a bit flip, would
have written wrong.  These functions put the right checksums into bytes that are otherwise left as
they are, so that hostile fields reach the code that interprets them.
"""

from struct import Struct, pack_into, unpack_from
from typing import Final

from google_crc32c import value as crc32c

from rewake.log.files.index import ENTRY_SIZE
from rewake.log.files.layout import segment_id
from rewake.log.files.mark import SLOT_SIZE
from rewake.log.files.segment import SEGMENT_HEADER_SIZE
from rewake.log.frame import HEADER_SIZE, MAGIC, TRAILER_SIZE

__all__ = ["repaired", "sealed_frame", "sealed_wire"]

_U32: Final = Struct("<I")
_OWNER: Final = Struct("<QQ")
_MARK_HEAD, _FRONTIER, _STRIPE_END = 40, 24, 24


def repaired(name: str, data: bytes, *, log_id: int, stripes: int = 1) -> bytes:
    """The file `name` of a log with all its checksums right."""
    buffer = bytearray(data)
    if name in ("LOG", "STRIPE"):
        _repair_descriptor(buffer)
    elif name == "mark":
        size = _MARK_HEAD + 2 * (_FRONTIER + stripes * _STRIPE_END)
        for slot in range(0, len(buffer), SLOT_SIZE):
            _sum(buffer, slot, slot + size)
    elif name == "floor":
        _sum(buffer, 0, 28)
    elif name.endswith(".log"):
        _sum(buffer, 0, SEGMENT_HEADER_SIZE - 4)
        _repair_frames(buffer, SEGMENT_HEADER_SIZE)
    elif name.endswith(".idx"):
        segment = segment_id(name[:-4] + ".log")
        epoch = segment.epoch if segment is not None else 0
        _repair_index(buffer, _OWNER.pack(log_id, epoch % (1 << 64)))
    return bytes(buffer)


def sealed_frame(data: bytes) -> bytes:
    """A frame with right magic, length and checksums whose other bytes are `data`."""
    size = max(len(data), HEADER_SIZE + TRAILER_SIZE)
    buffer = bytearray(data.ljust(size + (-size & 7), b"\0"))
    pack_into("<4sBB", buffer, 0, MAGIC, 1, 0)
    pack_into("<I", buffer, 80, len(buffer))
    pack_into("<I", buffer, len(buffer) - 4, len(buffer))
    _repair_frames(buffer, 0)
    return bytes(buffer)


def _sum(buffer: bytearray, start: int, stop: int, owner: bytes = b"") -> None:
    """Put the checksum of [start, stop) at `stop`, if there is room."""
    if stop + 4 <= len(buffer):
        _U32.pack_into(buffer, stop, crc32c(owner + bytes(buffer[start:stop])))


def _repair_descriptor(buffer: bytearray) -> None:
    if len(buffer) >= 16:
        _U32.pack_into(buffer, 8, len(buffer) - 16)
        _U32.pack_into(buffer, 12, crc32c(bytes(buffer[:12] + buffer[16:])))


def _repair_frames(buffer: bytearray, offset: int) -> None:
    """As far as frames follow each other by the lengths they state."""
    while buffer[offset : offset + 4] == MAGIC and offset + HEADER_SIZE <= len(buffer):
        (length,) = _U32.unpack_from(buffer, offset + 80)
        end = offset + length
        _sum(buffer, offset, offset + HEADER_SIZE - 4)
        if length < HEADER_SIZE + TRAILER_SIZE or end > len(buffer):
            return
        _sum(buffer, offset, end - TRAILER_SIZE)
        offset = end


def _repair_index(buffer: bytearray, owner: bytes) -> None:
    for start in range(0, len(buffer) - ENTRY_SIZE + 1, ENTRY_SIZE):
        _sum(buffer, start, start + ENTRY_SIZE - 4, owner)


def sealed_wire(data: bytes) -> bytes:
    """Frames of the wire with right checksums, as far as their lengths lead."""
    buffer, at = bytearray(data), 0
    while at + 20 <= len(buffer):
        buffer[at : at + 5] = b"RWKN\x01"
        header, payload = unpack_from("<II", buffer, at + 8)
        sealed = buffer[at : at + 16] + buffer[at + 20 : at + 20 + header]
        _U32.pack_into(buffer, at + 16, crc32c(bytes(sealed)))
        at += 20 + header + payload
    return bytes(buffer)
