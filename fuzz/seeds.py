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
