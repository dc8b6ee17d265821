"""Messages as bytes: frames with a small header and, for data, a payload that is never copied.

Little-endian.  Every frame is

    offset  size  field
         0     4  magic           "RWKN"
         4     1  version         1
         5     1  kind            of the message
         6     2  flags           of a packet: 1 final, 2 has a watermark, 4 is a marker; else 0
         8     4  header_length
        12     4  payload_length  0 unless the frame is a packet, or words between places
        16     4  crc             CRC-32C of bytes 0..15 and of the header
        20     .  header          of a packet: start, end, rows, watermark (i64 each);
                                  of an ack: consumed, needed (i64 each);
                                  of words: nothing;
                                  of an authentication frame: raw bytes; else a JSON object
         .     .  payload         of a packet: Arrow IPC, as it is, or a marker's bytes;
                                  of words: an approach's own

What always holds: `encode` followed by `decode_message` gives an equal message; decoding raises
nothing but `BadPeer`; both lengths are checked against the `Limits` before anything of that size is
allocated.  The payload has no checksum of its own here: TCP has one, and what must outlast a
machine gets the log's.

The design is argued in docs/design/wire.md.
"""

import json
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from rewake.log.frame import Buffer
from rewake.model.errors import BadPeer, UsageError
from rewake.net.wire.fields import (
    ADDRESS,
    BOOKMARK,
    COUNT,
    FIGURES,
    FLAG,
    INTEGER,
    OPTIONAL_BOOKMARK,
    OPTIONAL_LINEAGE,
    OPTIONAL_PEER,
    OPTIONAL_RECORD,
    PEERS,
    PLACES,
    TEXT,
    Field,
    WrongField,
    json_object,
)
from rewake.node import messages as node_messages
from rewake.node.messages import MAX_WORDS_BYTES, Ack, Packet, Words
from rewake.recovery.driven import MAX_MARKER_BYTES

__all__ = [
    "AUTHENTICATED",
    "PREFIX_BYTES",
    "UNAUTHENTICATED",
    "Frame",
    "Kind",
    "Limits",
    "Message",
    "Prefix",
    "check_header",
    "decode_message",
    "decode_prefix",
    "encode",
    "encode_frame",
]

MAGIC: Final = b"RWKN"
VERSION: Final = 1
_PREFIX: Final = Struct("<4sBBHIII")
_UNSEALED: Final = Struct("<4sBBHII")
_PACKET: Final = Struct("<qqqq")
_ACK: Final = Struct("<qq")
PREFIX_BYTES: Final = _PREFIX.size
assert PREFIX_BYTES == 20
_FINAL, _WATERMARK, _MARKER = 1, 2, 4

# What nodes, clients and the coordinator say; the classes of `rewake.node.messages`.
Message = Any


class Kind(IntEnum):
    """What a frame is."""

    CHALLENGE = 1
    RESPONSE = 2
    CONFIRMATION = 3
    PACKET = 16
    SUBSCRIBE = 17
    BEGINS = 18
    REFUSED = 19
    ACK = 20
    PRODUCE = 21
    PEEK = 22
    FOLLOW = 23
    WORDS = 24
    REGISTER = 32
    WELCOME = 33
    PEER_MOVED = 34
    HEARTBEAT = 35
    FINISHED = 36
    FAILED = 37
    STOP = 38
    SUPERSEDED = 39
    FIND = 40
    FOUND = 41
    IN_SYNC = 42
    PLACE_LOST = 43
    KEEP_BOOKMARK = 44


_KINDS: Final = {int(kind): kind for kind in Kind}
# There is an ack for every packet or two: JSON would cost more than the packet.
_FIXED_HEADERS: Final = {Kind.PACKET: _PACKET.size, Kind.ACK: _ACK.size, Kind.WORDS: 0}
_AUTHENTICATION: Final = frozenset({Kind.CHALLENGE, Kind.RESPONSE, Kind.CONFIRMATION})


class Limits(NamedTuple):
    """How long the parts of a frame may be."""

    header_bytes: int
    payload_bytes: int
    authenticated: bool


UNAUTHENTICATED: Final = Limits(4 << 10, 0, authenticated=False)
AUTHENTICATED: Final = Limits(64 << 10, 256 << 20, authenticated=True)
_MOST_PAYLOAD: Final = {Kind.PACKET: AUTHENTICATED.payload_bytes, Kind.WORDS: MAX_WORDS_BYTES}


class Prefix(NamedTuple):
    """The first bytes of a frame, checked against the limits."""

    kind: Kind
    flags: int
    header_length: int
    payload_length: int
    crc: int


class Frame(NamedTuple):
    """A whole frame whose checksum is right."""

    kind: Kind
    flags: int
    header: bytes
    payload: Buffer = b""


# --- the control messages ------------------------------------------------------------------------

# kind -> (class, its fields).  A test compares with the dataclasses.
CONTROL: Final[Mapping[Kind, tuple[Any, Mapping[str, Field]]]] = {
    Kind.SUBSCRIBE: (
        node_messages.Subscribe,
        {
            "node": TEXT,
            "output": COUNT,
            "subscriber": TEXT,
            "epoch": COUNT,
            "position": INTEGER,
            "expects": COUNT,
        },
    ),
    Kind.BEGINS: (
        node_messages.Begins,
        {"position": INTEGER, "epoch": COUNT, "lineage": OPTIONAL_LINEAGE},
    ),
    Kind.REFUSED: (
        node_messages.Refused,
        {"reason": TEXT, "fenced": FLAG, "misfit": FLAG, "later": FLAG},
    ),
    Kind.PRODUCE: (
        node_messages.Produce,
        {
            "node": TEXT,
            "channel": TEXT,
            "producer": TEXT,
            "epoch": COUNT,
            "position": COUNT,
        },
    ),
    Kind.PEEK: (node_messages.Peek, {"node": TEXT}),
    Kind.FOLLOW: (node_messages.Follow, {"node": TEXT, "place": COUNT, "epoch": COUNT}),
    Kind.IN_SYNC: (
        node_messages.InSync,
        {"node": TEXT, "epoch": COUNT, "place": COUNT, "standby": COUNT},
    ),
    Kind.PLACE_LOST: (
        node_messages.PlaceLost,
        {"node": TEXT, "place": COUNT, "standby": COUNT},
    ),
    Kind.REGISTER: (
        node_messages.Register,
        {
            "node": TEXT,
            "address": ADDRESS,
            "pid": COUNT,
            "host": TEXT,
            "server": TEXT,
            "place": COUNT,
        },
    ),
    Kind.WELCOME: (
        node_messages.Welcome,
        {
            "node": TEXT,
            "epoch": COUNT,
            "peers": PEERS,
            "log": OPTIONAL_RECORD,
            "standby": FLAG,
            "bookmark": OPTIONAL_BOOKMARK,
        },
    ),
    Kind.KEEP_BOOKMARK: (
        node_messages.KeepBookmark,
        {"node": TEXT, "epoch": COUNT, "bookmark": BOOKMARK},
    ),
    Kind.PEER_MOVED: (node_messages.PeerMoved, {"node": TEXT, "peer": OPTIONAL_PEER}),
    Kind.HEARTBEAT: (
        node_messages.Heartbeat,
        {"node": TEXT, "epoch": COUNT, "progress": FIGURES, "log": OPTIONAL_RECORD},
    ),
    Kind.FINISHED: (node_messages.Finished, {"node": TEXT, "epoch": COUNT}),
    Kind.FAILED: (
        node_messages.Failed,
        {"node": TEXT, "epoch": COUNT, "error": TEXT, "fatal": FLAG, "misfit": FLAG},
    ),
    Kind.STOP: (node_messages.Stop, {"reason": TEXT}),
    Kind.SUPERSEDED: (node_messages.Superseded, {"epoch": COUNT, "node": TEXT}),
    Kind.FIND: (node_messages.Find, {"stream": TEXT}),
    Kind.FOUND: (
        node_messages.Found,
        {
            "stream": TEXT,
            "shards": COUNT,
            "places": PLACES,
            "over": FLAG,
            "error": TEXT,
            "misfit": FLAG,
        },
    ),
}
_KIND_OF: Final = {message: (kind, fields) for kind, (message, fields) in CONTROL.items()}


# --- writing -------------------------------------------------------------------------------------


def encode(message: Message, limits: Limits = AUTHENTICATED) -> list[Buffer]:
    """The buffers to send, in order.  `UsageError` when the message is too large for a peer."""
    if type(message) is Packet:
        return _encode_packet(message, limits)
    if type(message) is Ack:
        return [encode_frame(Kind.ACK, _ACK.pack(message.consumed, message.needed))]
    if type(message) is Words:
        words = memoryview(message.words)
        head = encode_frame(Kind.WORDS, b"", 0, words.nbytes)
        return [head, words] if words.nbytes else [head]
    kind, fields = _KIND_OF[type(message)]
    value = {name: field.write(getattr(message, name)) for name, field in fields.items()}
    header = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(header) > limits.header_bytes:
        raise UsageError(
            f"a {kind.name.lower()} message of {len(header)} bytes cannot be sent: the limit is "
            f"{limits.header_bytes}; report fewer figures, or use fewer nodes"
        )
    return [encode_frame(kind, header)]


def _encode_packet(packet: Packet, limits: Limits) -> list[Buffer]:
    payload = memoryview(packet.marker or packet.payload).cast("B")
    if payload.nbytes > limits.payload_bytes:
        raise UsageError(
            f"the {packet.rows} tuples before position {packet.end} make a packet of "
            f"{payload.nbytes} bytes, over the limit of {limits.payload_bytes}; "
            "cut the stream into smaller stream events"
        )
    marks = bool(packet.marker)
    assert (packet.rows != 0) == (payload.nbytes > 0 and not marks), "tuples and bytes go together"
    flags = (_FINAL if packet.final else 0) | (0 if packet.watermark is None else _WATERMARK)
    flags |= _MARKER if marks else 0
    header = _PACKET.pack(packet.start, packet.end, packet.rows, packet.watermark or 0)
    head = encode_frame(Kind.PACKET, header, flags, payload.nbytes)
    return [head, payload] if payload.nbytes else [head]


def encode_frame(kind: Kind, header: bytes, flags: int = 0, payload_length: int = 0) -> bytes:
    """The bytes of a frame up to its payload."""
    unsealed = _UNSEALED.pack(MAGIC, VERSION, kind, flags, len(header), payload_length)
    crc = extend_crc32c(crc32c(unsealed), header)
    return b"".join((unsealed, crc.to_bytes(4, "little"), header))


# --- reading -------------------------------------------------------------------------------------


def decode_prefix(data: Buffer, limits: Limits, peer: str) -> Prefix:
    """The prefix in the first `PREFIX_BYTES` of `data`; its lengths are within the limits."""
    magic, version, number, flags, header_length, payload_length, crc = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise _bad(peer, f"bytes that are no frame of Rewake ({magic!r})")
    if version != VERSION:
        raise _bad(peer, f"a frame of version {version}; this is version {VERSION}")
    kind = _KINDS.get(number)
    if kind is None:
        raise _bad(peer, f"a message of the unknown kind {number}")
    if (kind in _AUTHENTICATION) == limits.authenticated:
        when = "after" if limits.authenticated else "before"
        raise _bad(peer, f"a {kind.name.lower()} message {when} authentication")
    if header_length > limits.header_bytes:
        raise _bad(peer, f"a header of {header_length} bytes; the limit is {limits.header_bytes}")
    if payload_length > limits.payload_bytes:
        raise _bad(
            peer, f"a payload of {payload_length} bytes; the limit is {limits.payload_bytes}"
        )
    if payload_length > _MOST_PAYLOAD.get(kind, 0) or (flags and kind is not Kind.PACKET):
        raise _bad(peer, f"a {kind.name.lower()} message with flags {flags} or with a payload")
    if header_length != _FIXED_HEADERS.get(kind, header_length):
        raise _bad(peer, f"a {kind.name.lower()} message with a header of {header_length} bytes")
    return Prefix(kind, flags, header_length, payload_length, crc)


def check_header(prefix_bytes: Buffer, prefix: Prefix, header: bytes, peer: str) -> None:
    """Raise unless the checksum over prefix and header is right."""
    if extend_crc32c(crc32c(bytes(prefix_bytes[:16])), header) != prefix.crc:
        raise _bad(peer, f"a {prefix.kind.name.lower()} message whose checksum is wrong")


def decode_message(frame: Frame, peer: str) -> Message:
    """The message in a frame of an authenticated peer."""
    if frame.kind is Kind.PACKET:
        return _decode_packet(frame, peer)
    if frame.kind is Kind.ACK:
        return Ack(*_ACK.unpack(frame.header))
    if frame.kind is Kind.WORDS:
        return Words(frame.payload)
    message, fields = CONTROL[frame.kind]
    name = frame.kind.name.lower()
    try:
        value = json_object(frame.header)
        if value.keys() != fields.keys():
            raise WrongField("missing or unknown fields")
        return message(**{each: field.read(value[each]) for each, field in fields.items()})
    except WrongField as error:
        raise _bad(
            peer, f"a {name} message that is wrong: {error}: {frame.header[:80]!r}"
        ) from error


def _decode_packet(frame: Frame, peer: str) -> Packet:
    start, end, rows, watermark = _PACKET.unpack(frame.header)
    is_marker = frame.flags == _MARKER and 0 < len(frame.payload) <= MAX_MARKER_BYTES
    if is_marker and 0 <= start == end and not (rows or watermark):
        return Packet(start, end, marker=bytes(frame.payload))
    has_watermark = bool(frame.flags & _WATERMARK)
    positions_right = 0 <= start <= end and -1 <= rows <= end - start
    flags_right = frame.flags <= (_FINAL | _WATERMARK) and (has_watermark or watermark == 0)
    if not positions_right or not flags_right or (rows != 0) != (len(frame.payload) > 0):
        raise _bad(
            peer,
            f"a packet of {rows} tuples and {len(frame.payload)} bytes for the positions "
            f"{start} to {end}, flags {frame.flags}, which cannot be",
        )
    final = bool(frame.flags & _FINAL)
    return Packet(start, end, rows, watermark if has_watermark else None, frame.payload, final)


def _bad(peer: str, what: str) -> BadPeer:
    return BadPeer(f"{peer} sent {what}; the connection is closed")
