"""What the two places of a node say to each other, as bytes.

Little-endian.  To the place that stands by, a message in pieces:

    offset  size  field
         0     1  last           1 if the message ends with this piece, else 0
         1     .  the next bytes of the message

and a message is

         0     8  kind           1 hold, 2 load, 3 take
         8     8  first          records below it are needed by nobody
        16     8  next           with these, records go on here
        24     8  position       and output there
        32     .  frames, one behind the other

    hold   records as they were left, with their output
    load   one record that is no turn's: the whole state
    take   records without their output, each with the input that it is made from

The answer is `wanted` (u64): everything before this sequence is held, or nothing at all.

Whatever the bytes are, reading them raises `BadPeer` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from rewake.log.frame import Frame, TurnRecord, decode_frame, encode_frame
from rewake.model.errors import BadPeer, DamagedFrame

__all__ = [
    "NOTHING_HELD",
    "Assembly",
    "Message",
    "Purpose",
    "answer",
    "encoded",
    "pieces",
    "wanted_in",
]

_HEAD: Final = Struct("<QQQQ")
_ANSWER: Final = Struct("<Q")
_MORE, _LAST = b"\0", b"\1"
_PIECE_BYTES: Final = 8 << 20
# What is said at once: all records that wait, or a whole state.
_MOST_BYTES: Final = 4 << 30
NOTHING_HELD: Final = (1 << 64) - 1


class Purpose(IntEnum):
    """What is to be done with the frames of a message."""

    HOLD = 1
    LOAD = 2
    TAKE = 3


class Message(NamedTuple):
    """What the place that stands by is told."""

    purpose: Purpose
    first: int
    next: int
    position: int
    frames: tuple[Frame, ...]


def encoded(record: TurnRecord, sequence: int, position: int) -> bytes:
    """A record as a frame; there is no log that it could be taken for."""
    return encode_frame(record, log_id=1, epoch=1, sequence=sequence, position=position, durable=0)


def pieces(
    purpose: Purpose, first: int, following: int, position: int, frames: Iterable[bytes]
) -> Iterator[bytes]:
    """A message, cut into what is said at once."""
    whole = b"".join([_HEAD.pack(purpose, first, following, position), *frames])
    for start in range(0, len(whole), _PIECE_BYTES):
        end = start + _PIECE_BYTES
        yield (_LAST if end >= len(whole) else _MORE) + whole[start:end]


class Assembly:
    """Puts the pieces of messages together."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def heard(self, piece: bytes) -> Message | None:
        """The message that ends with this piece, if one does."""
        last, rest = piece[:1], piece[1:]
        self._bytes += len(rest)
        if last not in (_LAST, _MORE) or self._bytes > _MOST_BYTES:
            raise BadPeer(f"a piece of {len(piece)} bytes that is part of no message")
        self._pieces.append(rest)
        if last == _MORE:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._bytes = [], 0
        return _decoded(whole)


def _decoded(whole: bytes) -> Message:
    if len(whole) < _HEAD.size:
        raise BadPeer(f"{len(whole)} bytes are no message to who stands by")
    kind, first, following, position = _HEAD.unpack_from(whole)
    if kind not in tuple(Purpose):
        raise BadPeer(f"a message to who stands by is of the unknown kind {kind}")
    frames, at = [], _HEAD.size
    try:
        while at < len(whole):
            frames.append(decode_frame(whole, at))
            at += frames[-1].length
    except DamagedFrame as error:
        raise BadPeer(f"what was said to who stands by is no record: {error}") from error
    return Message(Purpose(kind), first, following, position, tuple(frames))


def answer(wanted: int) -> bytes:
    """Everything before this sequence is held."""
    return _ANSWER.pack(wanted)


def wanted_in(words: bytes) -> int:
    """What `answer` said."""
    if len(words) != _ANSWER.size:
        raise BadPeer(f"{len(words)} bytes are no answer of a place that stands by")
    return int(_ANSWER.unpack(words)[0])
