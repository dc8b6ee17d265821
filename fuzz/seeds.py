"""Inputs to begin from: pieces of honest logs of every operator, deterministic."""

from collections.abc import Iterator

from fuzz.inputs import (
    DELETE,
    OVERWRITE,
    RENAME,
    REPAIR,
    TRUNCATE,
    Edit,
    pack_edits,
    pack_frames,
    stored,
)  # fmt: skip
from fuzz.logs import LOGS, honest
from rewake.log.files.lineage import Lineage, LogRecord, Step
from rewake.log.frame import Frame, SectionKind, TurnRecord, encode_frame

__all__ = ["histories", "seeds", "seeds_for"]

MAX_SEED_BYTES = 4096


def seeds() -> dict[str, list[bytes]]:
    """For every target, its seeds, none twice."""
    makers = {
        "frame": _frames,
        "columns": _columns,
        "segment": lambda: _files(".log", 88),
        "mark": lambda: _files("mark", MAX_SEED_BYTES),
        "descriptor": _descriptors,
        "index": lambda: _files(".idx", 400),
        "floor": lambda: _files("floor", 32),
        "log": _edits,
        "footprints": _footprints,
        "results": _results,
        "wire": _wire,
    }
    return {name: sorted(set(make())) for name, make in makers.items()}


def seeds_for(target: str) -> list[bytes]:
    """The seeds of one target."""
    return seeds()[target]


def histories() -> Iterator[tuple[int, tuple[Frame, ...]]]:
    """The operators, each with histories of several lengths, batchings and policies."""
    from fuzz.operators import SPECS, frames

    for case in range(len(SPECS)):
        for tuples, rows, checks in ((5, 5, False), (12, 1, True), (23, 4, True), (40, 9, False)):
            found = frames(case, tuples, rows, checks=checks)
            if found:
                yield case, found


def _encoded(frame: Frame) -> bytes:
    turn = TurnRecord(
        frame.t_end, frame.timestamp, frame.open_windows, frame.tuples, frame.records,
        frame.sections,
    )  # fmt: skip
    return encode_frame(
        turn, log_id=1, epoch=0, sequence=frame.sequence, position=frame.position, durable=0
    )


def _frames() -> Iterator[bytes]:
    for _, history in histories():
        for frame in history[-2:]:
            yield _encoded(frame)


def _columns() -> Iterator[bytes]:
    for _, history in histories():
        for section in history[-1].sections:
            if section.kind is not SectionKind.RESULTS:
                yield bytes(section.payload)


def _files(ending: str, size: int) -> Iterator[bytes]:
    for case in range(len(LOGS)):
        for stripe in honest(case):
            yield from (data[:size] for name, data in stripe.items() if name.endswith(ending))


def _descriptors() -> Iterator[bytes]:
    for data in (*_files("LOG", MAX_SEED_BYTES), *_files("STRIPE", MAX_SEED_BYTES)):
        yield data
        yield data[16:]  # the body alone


def _edits() -> Iterator[bytes]:
    """Every file of every log, changed in every way."""
    for case in range(len(LOGS)):
        yield pack_edits(case, [])
        count = sum(len(stripe) for stripe in honest(case))
        for file in range(count):
            for action in (OVERWRITE, OVERWRITE | REPAIR, TRUNCATE, TRUNCATE | REPAIR, DELETE):
                yield pack_edits(case, [Edit(file, action, 40 + 24 * file, b"\xff" * 8)])
        number = bytes([7]) + bytes(7)
        yield pack_edits(case, [Edit(count - 1, RENAME, 1, number + number)])


def _footprints() -> Iterator[bytes]:
    for case, history in histories():
        for length in (1, 4, 12):
            seed = pack_frames(case, [stored(frame) for frame in reversed(history[-length:])])
            if len(seed) <= 2 * MAX_SEED_BYTES:
                yield seed


def _results() -> Iterator[bytes]:
    for case, history in histories():
        for frame in history:
            for section in frame.sections:
                if section.kind is SectionKind.RESULTS and section.output == 0:
                    yield bytes([case]) + bytes(section.payload)


def _wire() -> Iterator[bytes]:
    """Every message, cut in several ways; and all frames of an honest handshake."""
    from rewake.net.wire.authentication import Handshake, Token
    from rewake.net.wire.codec import Frame, Kind, encode

    streams = [b"".join(bytes(each) for each in encode(message)) for message in _messages()]
    for cut, stream in enumerate((*streams, b"".join(streams))):
        yield bytes([4 * (cut % 3)]) + stream
    connector = Handshake(Token(bytes(32)), bytes(32), "a peer", accepting=False)
    acceptor = Handshake(Token(bytes(range(32))), bytes(32), "a peer", accepting=True)
    response = connector.receive(Frame(Kind.CHALLENGE, 0, acceptor.begin()[20:]))
    yield bytes([3]) + acceptor.begin()
    yield bytes([255]) + acceptor.begin() + response


def _messages() -> Iterator[object]:
    from rewake.node import messages as says

    peer = says.Peer(("127.0.0.1", 4711), 3)
    yield says.Packet(3, 9, 2, 17, bytes(range(200)), final=True)
    yield says.Packet(0, 9)
    yield says.Ack(5, -1)
    yield says.Subscribe("sum#0", 1, "print#0", 2, -1, 7)
    yield says.Begins(12, 1)
    yield says.Begins(12, 1, Lineage(7, (Step(1, 0, 5), Step(3, 12, 6)), 40))
    yield says.Refused("no such output", fenced=True)
    yield says.Produce("sum#0", "orders", "me")
    yield says.Register("sum#0", ("127.0.0.1", 65535), 77, "host")
    yield says.Welcome("sum#0", 1, {"a": peer, "b": peer})
    yield says.PeerMoved("a", peer)
    yield says.PeerMoved("a", None)
    yield says.Heartbeat("a", 1, {}, LogRecord(7, 1, 20))
    yield says.Heartbeat("a", 1, {"rate": 1.5, "deep": {"list": [1, None, True, "text"]}})
    yield says.Finished("a", 2)
    yield says.Failed("a", 2, "it broke", fatal=False)
    yield says.Stop("enough")
    yield says.Superseded(9)
    yield says.Find("totals")
    yield says.Found("totals", 1, [["sum#0", 0, "127.0.0.1", 4711, 3]])
