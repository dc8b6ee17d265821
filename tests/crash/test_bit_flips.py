"""Every bit of everything that is stored, flipped one at a time: no difference goes unnoticed."""

import time
from functools import cache

import pytest
import strength
from log_vocabulary import number_of, read_numbers, sample_turn

from rewake.log.files.layout import DESCRIPTOR, FLOOR, MARK, STRIPE, segment_id
from rewake.log.files.mark import SLOT_SIZE
from rewake.log.frame import Section, SectionKind, TurnRecord, decode_frame, encode_frame
from rewake.log.log import Log
from rewake.log.retention import Retention, trim
from rewake.log.verify import verify
from rewake.log.writing.host import DirectWriter
from rewake.log.writing.pipeline import Limits
from rewake.model.errors import DamagedFrame, DamagedLog, NotALog, UnsupportedVersion
from rewake.sim.memory import MemoryStore


def places(data: bytes) -> range:
    """The bytes whose bits are flipped."""
    return strength.sampled(range(len(data)), 10, about=strength.LOG)


def payload(size: int) -> bytes:
    return bytes((7 * i + size) % 251 for i in range(size))


def turn(*sections: Section) -> TurnRecord:
    return TurnRecord(11, -5, 3, 4, 2, sections)


FRAMES = {
    "no section": turn(),
    "one empty section": turn(Section(SectionKind.RESULTS, b"")),
    "every kind": turn(*(Section(kind, payload(40 + kind)) for kind in SectionKind)),
    "every kind, empty": turn(*(Section(kind, b"", 3) for kind in SectionKind)),
    **{f"{size} bytes": turn(Section(SectionKind.OPENS, payload(size))) for size in range(1, 17)},
    "three columns": turn(
        Section(SectionKind.RESULTS, payload(12000)),
        Section(SectionKind.OPENS, payload(8000)),
        Section(SectionKind.CHECKS, payload(10001), 1),
    ),
    "large": turn(Section(SectionKind.RESULTS, payload(34567))),
}


def test_every_flipped_bit_of_every_kind_of_frame_is_found(tally):
    """No single bit flip decodes; only DamagedFrame is ever raised."""
    started = time.perf_counter()
    flips = 0
    for name, record in FRAMES.items():
        data = encode_frame(record, log_id=99, epoch=2, sequence=5, position=15, durable=4)
        assert len(decode_frame(data).sections) == len(record.sections)
        flips += flip_all(name, data)
    took = time.perf_counter() - started
    tally(f"bit flips in frames: {flips} flips of {len(FRAMES)} kinds, 0 silent, in {took:.1f} s")
    assert flips >= (524_000 if strength.whole(*strength.LOG) else 52_000)


def flip_all(name: str, data: bytes) -> int:
    flips = 0
    damaged = bytearray(data)
    for at in places(data):
        for bit in range(8):
            damaged[at] ^= 1 << bit
            try:
                decode_frame(bytes(damaged))
            except DamagedFrame:
                flips += 1
            else:
                pytest.fail(f"bit {bit} of byte {at} of {name!r} was flipped unnoticed")
            damaged[at] ^= 1 << bit
    return flips


@cache
def striped_log() -> tuple[dict[str, bytes], ...]:
    """The files of a log with two stripes, rotations, a trim, an index and a second epoch."""
    stores = [MemoryStore(), MemoryStore()]
    Log.create(stores, "specimen", log_id=0xBEEF, metadata={"schema": b"\0\1", "owner": "a test"})
    limits = Limits(segment_bytes=500, index_interval=200)
    for epoch in range(2):
        writer = DirectWriter(stores, limits=limits)
        for number in range(epoch * 12, epoch * 12 + 12):
            writer.append(sample_turn(number))
        writer.close()
    trim(stores, 9, Retention(max_bytes=0))
    return tuple({name: s.read(name, 0, 1 << 20) for name in s.names()} for s in stores)


def stores_of(files: tuple[dict[str, bytes], ...]) -> list[MemoryStore]:
    return [MemoryStore.holding(contents) for contents in files]


def file_kinds() -> list[tuple[int, str]]:
    return [(stripe, name) for stripe, files in enumerate(striped_log()) for name in sorted(files)]


@pytest.mark.parametrize(("stripe", "name"), file_kinds(), ids=lambda value: str(value)[:40])
def test_every_flipped_bit_of_every_file_is_harmless_or_refused(stripe, name, tally):
    """A reader finds exactly what was written, or refuses with a typed error."""
    files = striped_log()
    expected = read_numbers(stores_of(files))
    data = files[stripe][name]
    harmless = refused = 0
    for at in places(data):
        if name == MARK and at % SLOT_SIZE >= 256:
            continue  # the unused rest of a slot
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            damaged = [dict(contents) for contents in files]
            damaged[stripe][name] = bytes(flipped)
            try:
                stores = stores_of(tuple(damaged))
                assert read_numbers(stores) == expected
                if name.endswith(".idx"):
                    check_seeks(stores, list(expected))
                harmless += 1
            except (DamagedLog, UnsupportedVersion, NotALog):
                refused += 1
    tally(f"bit flips in {stripe}/{name}: {harmless} harmless, {refused} refused, 0 silent")
    check_outcome(name, harmless, refused)


def check_seeks(stores: list[MemoryStore], sequences: list[int]) -> None:
    reader = Log.open_reader(stores)
    for sequence in sequences:
        assert next(reader.frames(from_sequence=sequence)).sequence == sequence
        assert next(reader.frames(from_position=3 * sequence + 1)).sequence == sequence


def check_outcome(name: str, harmless: int, refused: int) -> None:
    if name in (DESCRIPTOR, STRIPE, FLOOR):
        assert harmless == 0
    elif name.endswith(".idx") or name == MARK:
        assert refused == 0
    elif segment_id(name) and "epoch" not in name:
        assert refused > 0


def test_a_flip_in_a_frame_below_the_mark_is_refused_with_its_place():
    """DamagedLog names the segment and an offset at or before the flipped byte."""
    store = MemoryStore()
    Log.create(store, "specimen", log_id=0xBEEF)
    writer = DirectWriter(store)
    for number in range(6):
        writer.append(sample_turn(number))
    files = ({name: store.read(name, 0, 1 << 20) for name in store.names()},)
    name = next(name for name in files[0] if segment_id(name))
    frames = list(Log.open_reader(store).frames())
    for at in range(frames[0].offset, frames[-1].offset + frames[-1].length):
        flipped = bytearray(files[0][name])
        flipped[at] ^= 0x10
        damaged = stores_of(({**files[0], name: bytes(flipped)},))
        with pytest.raises(DamagedLog) as caught:
            [number_of(frame) for frame in Log.open_reader(damaged).frames()]
        assert caught.value.segment == name
        report = verify(damaged)
        assert not report.intact
        assert report.damage is not None
        assert report.damage.offset == max(f.offset for f in frames if f.offset <= at)
        assert report.end_sequence == report.damage.sequence
