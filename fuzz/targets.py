"""The fuzz targets: functions of bytes.  None may raise, whatever the bytes.

Each hands hostile bytes to a decoder and drops the errors that Rewake raises on purpose
(`RewakeError`).  Whatever else comes out is a finding: another exception, a wrong answer
(AssertionError), a crash, a hang.  Where a checksum guards the fields, the target tries the bytes
as they are and then once more with right checksums.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from struct import unpack_from
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from fuzz.checksums import repaired, sealed_frame, sealed_wire
from fuzz.inputs import (
    DELETE,
    OVERWRITE,
    Edit,
    StoredFrame,
    frames_of,
    unpack_edits,
    unpack_frames,
)  # fmt: skip
from fuzz.logs import (
    CLOSED_OR_KILLED,
    LOG_ID,
    LOGS,
    Files,
    damaged,
    honest,
    sample_turn,
    stores_of,
)
from rewake.log.columns import pack_columns, unpack_columns
from rewake.log.files.descriptor import read_descriptor
from rewake.log.files.floor import read_floor
from rewake.log.files.index import read_index
from rewake.log.files.layout import SegmentId
from rewake.log.files.mark import first_marks, read_mark
from rewake.log.files.segment import read_segment_header
from rewake.log.frame import (
    Frame,
    SectionKind,
    TurnRecord,
    decode_frame,
    decode_header,
    encode_frame,
    frame_length_before,
)  # fmt: skip
from rewake.log.log import Log
from rewake.log.reading.reader import LogReader
from rewake.log.verify import verify
from rewake.log.writing.host import DirectWriter
from rewake.model.errors import NotALog, RewakeError, UnsupportedVersion
from rewake.model.stream_event import StreamEvent
from rewake.sim.memory import MemoryStore

if TYPE_CHECKING:
    from rewake.net.wire.authentication import Handshake
    from rewake.net.wire.codec import Frame as WireFrame
    from rewake.net.wire.codec import Limits
    from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing

__all__ = ["TARGETS", "Target"]

Target = Callable[[bytes], None]


def _refusing() -> suppress:
    """Errors that Rewake raises on purpose are what hostile bytes deserve."""
    return suppress(RewakeError)


# --- the decoders, one by one ------------------------------------------------------------------


def frame(data: bytes) -> None:
    """A frame, as it is and with right checksums."""
    for candidate in (data, sealed_frame(data)):
        with _refusing():
            decode_header(candidate)
        with _refusing():
            frame_length_before(candidate, len(candidate))
        with _refusing():
            found = decode_frame(candidate)
            _check_round_trip(candidate[: found.length], found)


def _check_round_trip(encoded: bytes, found: Frame) -> None:
    header = decode_header(encoded)
    turn = TurnRecord(
        found.t_end, found.timestamp, found.open_windows, found.tuples, found.records,
        found.sections,
    )  # fmt: skip
    again = decode_frame(
        encode_frame(
            turn,
            log_id=header.log_id,
            epoch=found.epoch,
            sequence=found.sequence,
            position=found.position,
            durable=found.durable,
        )
    )
    assert again == found, "a frame does not survive being written again"


def columns(data: bytes) -> None:
    """A section of columns."""
    with _refusing():
        found = unpack_columns(data)
        assert sum(column.nbytes for column in found) <= len(data), "columns out of nothing"
        assert not any(column.flags.writeable for column in found), "a column can be written"
        again = unpack_columns(pack_columns(found))
        same = [
            a.dtype == b.dtype and a.tobytes() == b.tobytes()
            for a, b in zip(found, again, strict=True)
        ]
        assert all(same), "columns do not survive being written again"


def segment(data: bytes) -> None:
    """A segment's header, under the name that it claims."""
    (header_stripe,) = unpack_from("<H", data.ljust(32, b"\0"), 6)
    log_id, epoch, first_sequence = unpack_from("<QQQ", data.ljust(32, b"\0"), 8)
    name = SegmentId(first_sequence, epoch)
    for content in (data, repaired(name.name, data, log_id=log_id)):
        with _refusing():
            store = MemoryStore.holding({name.name: content})
            header = read_segment_header(store, name, stripe=header_stripe, log_id=log_id)
            same = header.encode() == content[:88] or header.previous is None
            assert same, "a header does not survive being written again"


def mark(data: bytes) -> None:
    """The durable mark, of logs with as many stripes as its first slot says."""
    stripes = 1 + data[6] % 16 if len(data) > 6 else 1
    (log_id,) = unpack_from("<Q", data.ljust(16, b"\0"), 8)
    whole = data.ljust(len(first_marks(log_id=log_id, stripes=stripes)), b"\0")
    for content in (data, whole, repaired("mark", whole, log_id=log_id, stripes=stripes)):
        for anchors_only in (False, True):
            with _refusing():
                store = MemoryStore.holding({"mark": content})
                found = read_mark(store, log_id=log_id, stripes=stripes, anchors_only=anchors_only)
                assert found.encode() in content, "a mark that nobody wrote"


def descriptor(data: bytes) -> None:
    """The descriptor: its whole file, and its JSON body alone."""
    body = b"RWKL" + (1).to_bytes(4, "little") + bytes(8) + data
    for content in (data, repaired("LOG", data, log_id=1), repaired("LOG", body, log_id=1)):
        with _refusing():
            found = read_descriptor([MemoryStore.holding({"LOG": content})])
            numbers = (type(found.log_id), type(found.stripes))
            assert numbers == (int, int), f"numbers of types {numbers}"


def index(data: bytes) -> None:
    """A sparse index."""
    place = SegmentId(0, 0)
    for content in (data, repaired(place.index_name, data, log_id=LOG_ID)):
        with _refusing():
            store = MemoryStore.holding({place.index_name: content})
            entries = read_index(store, place, log_id=LOG_ID, end=1 << 20)
            assert all(entry.offset < 1 << 20 for entry in entries), "an entry beyond the end"


def floor(data: bytes) -> None:
    """The floor, of the log that it names."""
    (log_id,) = unpack_from("<Q", data.ljust(16, b"\0"), 8)
    for content in (data, repaired("floor", data.ljust(32, b"\0"), log_id=log_id)):
        with _refusing():
            read_floor(MemoryStore.holding({"floor": content}), log_id=log_id)


# --- whole logs ----------------------------------------------------------------------------------


def log(data: bytes) -> None:
    """A log with damaged files: read it in every way, verify it, go on writing it."""
    case, edits = unpack_edits(data)
    files = damaged(honest(case), edits)
    forged = any(edit.action not in (OVERWRITE, DELETE) for edit in edits)
    known = None if forged else known_frames(case)
    with _refusing():
        reader = Log.open_reader(stores_of(files))
        whole = not forged and _only_frames_are_hit(case, edits)
        assert not whole or reader.end_sequence == _end_of(case), "frames are gone without a word"
        read_all(reader, known)
    _verify(files)
    with _refusing():
        _append(files, known)


@cache
def _end_of(case: int) -> int:
    """The end of an honest log."""
    return Log.open_reader(stores_of(honest(case))).end_sequence


def _only_frames_are_hit(case: int, edits: list[Edit]) -> bool:
    """Whether all damage is to segments and indexes of a log whose mark is exact."""
    names = [name for stripe in honest(case) for name in sorted(stripe)]
    hit = [names[edit.file % len(names)] for edit in edits[:1]]
    exact = case % len(LOGS) in CLOSED_OR_KILLED
    return exact and len(edits) <= 1 and all(name.endswith((".log", ".idx")) for name in hit)


class _Content(NamedTuple):
    """What a frame says, wherever it lies."""

    position: int
    timestamp: int
    payloads: tuple[bytes, ...]


def _content(found: Frame) -> _Content:
    payloads = tuple(bytes(section.payload) for section in found.sections)
    return _Content(found.position, found.timestamp, payloads)


@cache
def known_frames(case: int) -> dict[int, _Content]:
    reader = Log.open_reader(stores_of(honest(case)))
    known = {found.sequence: _content(found) for found in reader.frames()}
    # After power loss there may be whole frames behind what a reader sees; a writer adopts them.
    stores = stores_of(honest(case))
    Log.open_for_append(stores)
    for found in Log.open_reader(stores).frames():
        known[found.sequence] = _content(found)
    return known


def read_all(reader: LogReader, known: dict[int, _Content] | None) -> None:
    """Forwards, backwards, from places in the middle, and along with a writer."""
    first, end = reader.first_sequence, reader.end_sequence
    with _refusing():
        forwards = list(reader.frames(chunk_bytes=256))
        assert [each.sequence for each in forwards] == list(range(first, end)), "a gap"
        _compare(forwards, known)
    with _refusing():
        backwards = list(reader.frames_backwards(chunk_bytes=256))
        assert [each.sequence for each in backwards] == list(range(end - 1, first - 1, -1)), "a gap"
        _compare(backwards, known)
    for place in ({"from_position": 9}, {"from_timestamp": 70}, {"from_sequence": end - 1}):
        with _refusing():
            _compare(list(reader.frames(**place)), known)
    with _refusing():
        reader.refresh()
        _compare(reader.tail(from_sequence=first).poll(), known)


def _compare(found: list[Frame], known: dict[int, _Content] | None) -> None:
    """Damage without right checksums may hide frames, loudly; it never changes one."""
    if known is not None:
        for each in found:
            assert known.get(each.sequence) == _content(each), "damage was read as data"


def _verify(files: Files) -> None:
    """`verify` reports damage; it raises only when there is no log to report on."""
    with suppress(NotALog, UnsupportedVersion):
        verify(stores_of(files))


def _append(files: Files, known: dict[int, _Content] | None) -> None:
    stores = stores_of(files)
    writer = DirectWriter(stores)
    sequence = writer.append(sample_turn(99))
    writer.close()
    reader = Log.open_reader([store.killed() for store in stores])
    assert reader.end_sequence == sequence + 1, "what was appended is not there"
    *before, last = reader.frames()
    assert last.t_end == 99, "what was appended is not the last frame"
    _compare(before, known)


# --- footprints and results ----------------------------------------------------------------------


def footprints(data: bytes) -> None:
    """Frames with right checksums and hostile footprints: recover an operator, then use it."""
    from fuzz.operators import operator
    from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
    from rewake.recovery.policies.targets import TargetsPolicy

    case, parts = unpack_frames(data)
    policy = TargetsPolicy(records=2, tuples=2, interval_ms=1, period_ms=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sums of hostile floats may overflow
        with _refusing():
            driver = ContinuousEventualCheckpointing.recover(
                operator(case), policy, frames_of(parts)
            )
            _check_recovered(driver.position, parts)
            driver.check_invariants()
            _drive(driver)


def _check_recovered(position: int, parts: list[StoredFrame]) -> None:
    end = parts[0].t_end + 1 if parts else 0
    assert 0 <= position <= end, f"recovery asks for input at {position} of {end}"


def _drive(driver: "ContinuousEventualCheckpointing") -> None:
    """Replay some input, then process some, then let all windows close."""
    from fuzz.operators import batch

    for turns in range(6):
        if driver.position >= 1 << 40:
            return  # no stream is that long
        driver.turn(StreamEvent(driver.position, batch(driver.position % 64, 12)), float(turns))
    if not driver.recovering:
        late = batch(driver.position % 64, 4, jump=100_000)
        driver.turn(StreamEvent(driver.position, late, 200_000), 9.0)


@cache
def _output_schema(case: int) -> pa.Schema:
    from fuzz.operators import operator

    return operator(case).output_schema


def results(data: bytes) -> None:
    """A batch of results."""
    from rewake.log.results import result_batch

    case = data[0] % 12 if data else 0
    payload = StoredFrame(0, 0, 0, 0, ((SectionKind.RESULTS, data[1:]),))
    with _refusing():
        (frame,) = frames_of([payload])
        found = result_batch(frame._replace(tuples=2**32), _output_schema(case))
        assert found is not None
        found.slice(0, 1000).to_pylist()


# --- the wire ------------------------------------------------------------------------------------


def wire(data: bytes) -> None:
    """A stream from a peer: the first byte says how it is cut and whether the peer is known."""
    from rewake.net.wire.codec import AUTHENTICATED, UNAUTHENTICATED

    cut = data[0] if data else 0
    limits = UNAUTHENTICATED if cut % 4 == 3 else AUTHENTICATED
    for stream in (data[1:], sealed_wire(data[1:])):
        with _refusing():
            _receive(stream, 1 + 37 * (cut // 4), limits)


def _receive(stream: bytes, piece: int, limits: "Limits") -> None:
    from rewake.net.wire.authentication import Handshake, Token
    from rewake.net.wire.decoder import Decoder

    token = Token(b"\7" * 32)  # which no input can know
    ends = [Handshake(token, bytes(32), "a peer", accepting=each) for each in (False, True)]
    decoder = Decoder("a peer", limits)
    for at in range(0, len(stream), piece):
        rest = stream[at : at + piece]
        while rest:
            taken = min(len(rest), len(decoder.buffers()[0]))
            assert taken, "a decoder that takes nothing"
            decoder.buffers()[0][:taken] = rest[:taken]
            decoder.received(taken)
            rest = rest[taken:]
            while (frame := decoder.next_frame()) is not None:
                _take(frame, limits, ends)
    assert not any(end.done for end in ends), "a proof out of nothing"


def _take(frame: "WireFrame", limits: "Limits", ends: "list[Handshake]") -> None:
    from rewake.net.wire.codec import decode_message, encode

    if not limits.authenticated:
        for end in ends:
            with _refusing():
                end.receive(frame)
        return
    with _refusing():
        message = decode_message(frame, "a peer")
        again = encode(message)
        same = bytes(again[0][20:]) == frame.header or decode_message(
            frame._replace(header=bytes(again[0][20:])), "a peer"
        )
        assert same in (True, message), "a message does not survive being sent on"


TARGETS: Final[dict[str, Target]] = {
    "frame": frame,
    "columns": columns,
    "segment": segment,
    "mark": mark,
    "descriptor": descriptor,
    "index": index,
    "floor": floor,
    "log": log,
    "footprints": footprints,
    "results": results,
    "wire": wire,
}
