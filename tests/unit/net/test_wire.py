"""Messages as bytes and back, and what becomes of bytes that are no messages."""

import dataclasses
import json
import math
import tracemalloc
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_vocabulary import SAMPLES, as_bytes, decoded, feed

from rewake.model.errors import BadPeer, UsageError
from rewake.net.wire.codec import (
    AUTHENTICATED,
    CONTROL,
    UNAUTHENTICATED,
    Kind,
    Limits,
    Message,
    encode,
    encode_frame,
)
from rewake.net.wire.decoder import Decoder
from rewake.node.messages import Failed, Heartbeat, Packet, Peer, Register, Welcome, Words
from rewake.recovery.bookmark import Bookmark
from rewake.recovery.driven import MAX_MARKER_BYTES

POSITIONS = st.integers(0, 2**62)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("message", SAMPLES, ids=lambda each: type(each).__name__)
def test_a_message_survives_the_wire(message: Message) -> None:
    """What arrives equals what was sent."""
    assert decoded([as_bytes(message)]) == [message]


def test_every_message_has_a_kind_and_every_field_a_reader() -> None:
    """A field that is added to a message and forgotten here would be lost silently."""
    for message, fields in CONTROL.values():
        assert [each.name for each in dataclasses.fields(message)] == list(fields)
    kinds = {type(each) for each in SAMPLES}
    assert len(kinds) == len(CONTROL) + 3, "a message without a sample"


@given(
    start=POSITIONS,
    rows=st.integers(1, 2**40),
    watermark=st.none() | INTEGERS,
    payload=st.binary(min_size=1, max_size=20_000),
    final=st.booleans(),
    cuts=st.lists(st.integers(0, 20_100), max_size=8),
)
def test_packets_survive_being_cut_anywhere(
    start: int, rows: int, watermark: int | None, payload: bytes, final: bool, cuts: list[int]
) -> None:
    """TCP keeps no boundaries."""
    packet = Packet(start, start + rows, rows, watermark, payload, final)
    stream = as_bytes(packet) * 2
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert decoded(pieces) == [packet, packet]


def test_a_payload_is_sent_without_a_copy_and_received_aligned() -> None:
    """Arrow reads it where it is."""
    batch = pa.RecordBatch.from_pydict({"a": list(range(1000))})
    payload = batch.serialize()
    buffers = encode(Packet(0, 1000, 1000, None, payload))
    assert pa.py_buffer(buffers[1]).address == payload.address
    (packet,) = decoded([b"".join(bytes(each) for each in buffers)])
    received = pa.py_buffer(packet.payload)
    assert received.address % 64 == 0
    assert pa.ipc.read_record_batch(received, batch.schema).equals(batch)


# --- what cannot be sent -------------------------------------------------------------------------


def test_a_packet_over_the_limit_is_refused_before_it_is_sent() -> None:
    """With the position, and what to do."""
    small = AUTHENTICATED._replace(payload_bytes=10)
    with pytest.raises(UsageError, match=r"before position 5 .* smaller stream events"):
        encode(Packet(0, 5, 5, None, bytes(11)), small)


def test_a_control_message_over_the_limit_is_refused_before_it_is_sent() -> None:
    """The peer would hang up without a word to the user."""
    with pytest.raises(UsageError, match="heartbeat message of"):
        encode(Heartbeat("a", 1, {str(number): number for number in range(10_000)}))


def test_a_long_error_is_shortened_in_the_middle() -> None:
    """An error report that cannot be sent helps nobody."""
    (received,) = decoded([as_bytes(Failed("a", 1, "begin" + "x" * 10**6 + "end"))])
    assert received.error.startswith("begin")
    assert received.error.endswith("end")
    assert "characters left out" in received.error


def test_figures_of_any_kind_can_be_sent() -> None:
    """A rate that is not known yet must not end the node."""
    figures = {"nan": math.nan, "inf": math.inf, "numpy": pa.scalar(3).as_py(), "odd": {1, 2}}
    (received,) = decoded([as_bytes(Heartbeat("a", 1, figures))])
    assert received.progress["nan"] is None
    assert received.progress["inf"] is None
    assert received.progress["odd"] == "{1, 2}"


# --- what is refused -----------------------------------------------------------------------------


def control(kind: Kind, value: object) -> bytes:
    """A frame with a right checksum and any JSON."""
    return encode_frame(kind, json.dumps(value).encode())


HONEST = {
    "node": "a", "address": ["127.0.0.1", 80], "pid": 1, "host": "", "server": "", "place": 0,
}  # fmt: skip
WRONG_FIELDS = (
    {"address": ["h", 65536]},
    {"address": ["h", -1]},
    {"address": ["h"]},
    {"address": ["", 1]},
    {"address": ["h\n", 1]},
    {"address": "h:1"},
    {"address": ["h", 1.0]},
    {"node": 5},
    {"node": None},
    {"node": ["a"]},
    {"pid": True},
    {"pid": -1},
    {"pid": 2**63},
    {"pid": 1.0},
    {"pid": "1"},
    {"more": 1},
)


@pytest.mark.parametrize("wrong", WRONG_FIELDS, ids=str)
def test_a_field_of_the_wrong_type_is_refused(wrong: dict[str, object]) -> None:
    """No message reaches anybody with a field of another type than it declares."""
    assert decoded([control(Kind.REGISTER, HONEST)]) == [Register("a", ("127.0.0.1", 80), 1)]
    with pytest.raises(BadPeer, match="a peer sent a register message that is wrong"):
        decoded([control(Kind.REGISTER, HONEST | wrong)])


def test_a_missing_field_is_refused_also_when_it_has_a_default() -> None:
    """Nobody sends it so."""
    with pytest.raises(BadPeer, match="missing or unknown fields"):
        decoded([control(Kind.STOP, {})])


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b'{"reason": NaN}',
        b'{"reason": "\\ud800"}',
        b'{"reason": ' + b"[" * 50_000,
        b'{"reason": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda header: repr(header[:20]),
)
def test_a_header_that_is_no_json_object_is_refused(header: bytes) -> None:
    """Also one that is nested or long enough to break a parser."""
    with pytest.raises(BadPeer):
        decoded([encode_frame(Kind.STOP, header)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((0, b"GET "), "no frame of Rewake"),
        ((4, b"\x02"), "version 2"),
        ((5, b"\xff"), "unknown kind 255"),
        ((5, b"\x01"), "challenge message after authentication"),
        ((6, b"\x01"), "with flags 1"),
        ((8, b"\xff\xff\xff\x7f"), "the limit is 65536"),
        ((12, b"\x01"), "with a payload"),
        ((12, b"\xff\xff\xff\xff"), "the limit is 268435456"),
        ((16, b"\x00\x00\x00\x00"), "checksum is wrong"),
        ((20, b"X"), "checksum is wrong"),
    ],
)
def test_each_part_of_the_prefix_is_checked(change: tuple[int, bytes], said: str) -> None:
    """The error says what was received and from whom."""
    data = bytearray(as_bytes(SAMPLES[5]))
    data[change[0] : change[0] + len(change[1])] = change[1]
    with pytest.raises(BadPeer, match=said) as caught:
        decoded([bytes(data)])
    assert str(caught.value).startswith("a peer sent")


@pytest.mark.parametrize(
    "packet",
    [
        Packet(5, 4),
        Packet(-1, 4),
        Packet(0, 4, 5, None, b"x"),
        Packet(0, 4, -2, None, b"x"),
        Packet(3, 4, marker=b"x"),
        Packet(-1, -1, marker=b"x"),
        Packet(4, 4, watermark=7, marker=b"x"),
        Packet(4, 4, final=True, marker=b"x"),
        Packet(4, 4, marker=b"x" * (MAX_MARKER_BYTES + 1)),
    ],
)
def test_a_packet_that_contradicts_itself_is_refused(packet: Packet) -> None:
    """Positions are the time of the recovery protocols: they must make sense at least."""
    with pytest.raises(BadPeer, match="which cannot be"):
        decoded([as_bytes(packet)])


def test_tuples_without_bytes_and_bytes_without_tuples_are_refused() -> None:
    """Encoding asserts it, so the bytes are made by hand."""
    empty = bytearray(as_bytes(Packet(0, 9)))
    header = bytearray(empty[20:])
    header[16] = 3
    with pytest.raises(BadPeer, match="3 tuples and 0 bytes"):
        decoded([encode_frame(Kind.PACKET, bytes(header))])
    with pytest.raises(BadPeer, match="0 tuples and 4 bytes"):
        decoded([encode_frame(Kind.PACKET, bytes(empty[20:]), 0, 4) + b"data"])


@pytest.mark.parametrize("limits", [UNAUTHENTICATED, AUTHENTICATED])
def test_nothing_is_allocated_for_a_length_over_the_limit(limits: Limits) -> None:
    """A few bytes must not make us take gigabytes."""
    kind = Kind.PACKET if limits.authenticated else Kind.RESPONSE
    payload = limits.payload_bytes + 1
    for data in (
        encode_frame(kind, bytes(32), 0, payload),
        encode_frame(kind, bytes(32))[:8] + b"\xff\xff\xff\xff" + bytes(8),
    ):
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        with pytest.raises(BadPeer):
            decoded([data], limits)
        taken = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
        tracemalloc.stop()
        assert taken < 100_000


def test_a_damaged_header_allocates_no_payload() -> None:
    """The checksum is checked first, so a flipped bit in the length costs nothing."""
    data = bytearray(encode_frame(Kind.PACKET, bytes(32), 0, 1000))
    data[15] = 1  # 16 MiB more
    before = pa.total_allocated_bytes()
    with pytest.raises(BadPeer, match="checksum"):
        decoded([bytes(data)])
    assert pa.total_allocated_bytes() == before


# --- hostile bytes -------------------------------------------------------------------------------

STREAM = b"".join(as_bytes(message) for message in SAMPLES)


def test_every_prefix_of_a_stream_is_the_messages_that_are_whole() -> None:
    """And the rest is waited for: never an error, never a hang."""
    ends = [len(as_bytes(message)) for message in SAMPLES]
    for cut in range(len(STREAM)):
        whole, used = 0, 0
        while whole < len(ends) and used + ends[whole] <= cut:
            used += ends[whole]
            whole += 1
        decoder = Decoder("a peer", AUTHENTICATED)
        assert len(list(feed(decoder, STREAM[:cut]))) == whole
        assert decoder.between_frames == (used == cut)
        assert len(list(feed(decoder, STREAM[cut:]))) == len(SAMPLES) - whole


def test_every_flipped_bit_is_a_typed_error_a_wait_or_in_a_payload() -> None:
    """A message that was changed on its way is never taken for one."""
    payload_bytes = {b"arrow bytes", b"x", b"what an approach says"}
    for place in range(len(STREAM)):
        for bit in (1, 128):
            garbled = bytearray(STREAM)
            garbled[place] ^= bit
            try:
                found = decoded([bytes(garbled)])
            except BadPeer:
                continue
            different = [a for a, b in zip(found, SAMPLES, strict=False) if a != b]
            assert all(type(each) in (Packet, Words) for each in different)
            payloads = [each.payload if type(each) is Packet else each.words for each in different]
            assert all(bytes(each) not in payload_bytes for each in payloads)


@given(st.binary(max_size=300), st.sampled_from([UNAUTHENTICATED, AUTHENTICATED]))
def test_any_bytes_are_a_typed_error_or_a_wait(data: bytes, limits: Limits) -> None:
    """Nothing but BadPeer comes out."""
    for stream in (data, b"RWKN" + data, STREAM[:97] + data):
        try:
            decoded([stream], limits)
        except BadPeer:
            continue


@given(st.sampled_from(sorted(CONTROL)), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
))  # fmt: skip
def test_any_json_in_any_field_is_a_typed_error_or_a_message(kind: Kind, value: object) -> None:
    """Checked field by field, since a random object has no right names."""
    message, fields = CONTROL[kind]
    honest = {name: field.write(_default(name)) for name, field in fields.items()}
    for name in fields:
        try:
            (found,) = decoded([control(kind, honest | {name: value})])
        except BadPeer:
            continue
        assert isinstance(found, message)
        assert decoded([as_bytes(found)]) == [found]


def _default(name: str) -> object:
    special: dict[str, object] = {
        "address": ("h", 1), "peers": {}, "peer": None, "progress": {}, "fenced": False,
        "fatal": True, "places": [], "lineage": None, "log": None, "misfit": False,
        "bookmark": Bookmark(1, 2, 3, 0, 1, 2, 0),
    }  # fmt: skip
    texts = {
        "node", "subscriber", "reason", "channel", "producer", "host", "error", "stream", "server",
    }  # fmt: skip
    return special.get(name, "text" if name in texts else 1)


def test_a_welcome_of_a_large_query_fits() -> None:
    """Five hundred nodes are more than anyone has slots for."""
    peers = {f"node-with-a-long-name#{number}": Peer(("192.168.100.100", 65535), 1000)
             for number in range(500)}  # fmt: skip
    assert decoded([as_bytes(Welcome("a", 1, peers))]) == [Welcome("a", 1, peers)]
