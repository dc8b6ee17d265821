"""Frames: round trips, caps, and hostile bytes."""

import struct

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from rewake.log.frame import (
    HEADER_SIZE,
    MAX_SECTIONS,
    Section,
    SectionKind,
    TurnRecord,
    decode_frame,
    decode_header,
    encode_frame,
    frame_length_before,
)
from rewake.model.errors import DamagedFrame, UsageError

PLACE = {"log_id": 7, "epoch": 3, "sequence": 11, "position": 40, "durable": 9}
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
SECTIONS = st.lists(
    st.builds(Section, st.sampled_from(SectionKind), st.binary(max_size=70), st.integers(0, 255)),
    max_size=9,
)


@given(I64, I64, st.integers(0, (1 << 64) - 1), U32, U32, SECTIONS)
def test_a_frame_reads_back_as_it_was_written(t_end, timestamp, windows, tuples, records, sections):
    """Every field and every section, in order, wherever the frame lies in a buffer."""
    turn = TurnRecord(t_end, timestamp, windows, tuples, records, sections)
    data = encode_frame(turn, **PLACE)
    assert len(data) % 8 == 0
    frame = decode_frame(b"........" + data + b"behind", 8, segment="s", base=100)
    assert (frame.t_end, frame.timestamp, frame.open_windows) == (t_end, timestamp, windows)
    assert (frame.tuples, frame.records, frame.length) == (tuples, records, len(data))
    assert (frame.epoch, frame.sequence, frame.position, frame.durable) == (3, 11, 40, 9)
    assert (frame.segment, frame.offset) == ("s", 108)
    assert [(s.kind, bytes(s.payload), s.output) for s in frame.sections] == sections
    assert frame_length_before(data, len(data)) == len(data)


def test_a_section_is_found_by_kind_and_output():
    """The payload is a read-only view; a section that is not there is None."""
    sections = [Section(SectionKind.RESULTS, b"a"), Section(SectionKind.RESULTS, b"b", 1)]
    frame = decode_frame(encode_frame(TurnRecord(0, 0, 0, 0, 0, sections), **PLACE))
    assert frame.section(SectionKind.RESULTS) == b"a"
    found = frame.section(SectionKind.RESULTS, 1)
    assert found == b"b"
    assert found is not None
    assert found.readonly
    assert frame.section(SectionKind.OPENS) is None


@given(st.binary(max_size=300), st.integers(-5, 305))
def test_arbitrary_bytes_are_refused_with_one_error(data, offset):
    """Nothing but DamagedFrame, wherever decoding begins."""
    for decode in (decode_header, decode_frame):
        with pytest.raises(DamagedFrame):
            decode(data, offset)


@given(SECTIONS, st.data())
def test_a_frame_cut_anywhere_is_refused(sections, data):
    """Every proper prefix."""
    whole = encode_frame(TurnRecord(0, 0, 0, 0, 0, sections), **PLACE)
    with pytest.raises(DamagedFrame):
        decode_frame(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("field", ["length", "sections", "version", "flags"])
def test_a_hostile_header_with_a_right_checksum_is_refused_before_anything_is_read(field):
    """A length of 4 GiB, too many sections, an unknown version: refused from the header alone."""
    data = bytearray(encode_frame(TurnRecord(0, 0, 0, 0, 0), **PLACE))
    where, what = {
        "length": (80, b"\xf8\xff\xff\xff"),
        "sections": (6, b"\xff\xff"),
        "version": (4, b"\x09"),
        "flags": (5, b"\x01"),
    }[field]
    data[where : where + len(what)] = what
    data[84:88] = struct.pack("<I", crc32c(bytes(data[:84])))
    with pytest.raises(DamagedFrame):
        decode_header(bytes(data))


def resealed(data: bytearray) -> bytes:
    data[-8:-4] = struct.pack("<I", crc32c(bytes(data[:-8])))
    return bytes(data)


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0, 200), (2, 1), (4, 255), (7, 255)], ids=str)
def test_a_hostile_directory_with_right_checksums_is_refused(at, value):
    """An unknown kind, a reserved bit, a payload that does not fit."""
    turn = TurnRecord(0, 0, 0, 0, 0, [Section(SectionKind.OPENS, b"12345678")])
    data = bytearray(encode_frame(turn, **PLACE))
    data[HEADER_SIZE + at] = value
    with pytest.raises(DamagedFrame):
        decode_frame(resealed(data))


@pytest.mark.parametrize(
    "turn",
    [
        TurnRecord(1 << 63, 0, 0, 0, 0),
        TurnRecord(0, 0, -1, 0, 0),
        TurnRecord(0, 0, 0, 1 << 32, 0),
        TurnRecord(0, 0, 0, 0, 0, [Section(SectionKind.OPENS, b"")] * (MAX_SECTIONS + 1)),
        TurnRecord(0, 0, 0, 0, 0, [Section(SectionKind.OPENS, b"", 256)]),
    ],
    ids=["time", "windows", "tuples", "sections", "output"],
)
def test_a_turn_that_does_not_fit_is_the_callers_mistake(turn):
    """UsageError, with the turn's sequence."""
    with pytest.raises(UsageError, match="turn 11"):
        encode_frame(turn, **PLACE)
