"""Running a case: through failure-free and through crashing processes, on a log of frames."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple, Protocol
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aggregate_cases import IMMORTAL, Case, Life

from rewake.log.frame import Frame, TurnRecord, decode_frame, encode_frame
from rewake.log.results import result_batch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate import user_accumulator
from rewake.operators.columns import keys as key_columns
from rewake.recovery.eventual.engine import (
    LATE_OUTPUT,
    RESULTS_OUTPUT,
    ContinuousEventualCheckpointing,
)

# How many cases the running test has been through, by what happened in them.
TRIED: Counter[str] = Counter()


def share_compiled_functions() -> None:
    """Compile the user-defined function of the cases once, not once per operator."""
    compiled = user_accumulator.compiled_kernel
    kernels: dict[object, object] = {}

    @functools.wraps(compiled)
    def shared(function, initial):  # type: ignore[no-untyped-def]
        key = (function.update, function.merge, function.result, initial)
        if key not in kernels:
            kernels[key] = compiled(function, initial)
        return kernels[key]

    user_accumulator.compiled_kernel = shared


def forgetting(case: Case) -> mock._patch[int]:
    """While in this context, idle keys are forgotten as the case says."""
    return mock.patch.object(key_columns, "SPARE_KEYS", -1 if case.forgetful else 65_536)


# --- input -----------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Where the tuples of a case are in its stream.

    No stream event reaches over a border: a punctuation, or tuples followed by positions without.
    """

    positions: np.ndarray
    end: int
    marks: dict[int, int]
    borders: list[int]


def layout_of(case: Case) -> Layout:
    """The positions of tuples and punctuations; a punctuation is right behind a tuple."""
    rows = case.batch.num_rows
    gaps = np.zeros(rows + 1, np.int64)
    for row, size in case.gaps:
        gaps[row] = size
    positions = np.arange(rows) + np.cumsum(gaps)[:rows]
    behind = np.concatenate([[0], positions + 1])
    marks = {int(behind[row]): time for row, time in case.punctuations}
    followed = behind[1:][gaps[1:] > 0].tolist()
    return Layout(positions, rows + int(gaps.sum()), marks, sorted({*marks, *followed}))


def events(case: Case, start: int, cuts: tuple[int, ...]) -> Iterator[StreamEvent]:
    """The input from `start` on.

    A punctuation stays between the two tuples where it was: it rides on the tuples before it, or,
    when the next cut is 0 or the input starts there, on an event without tuples.
    """
    layout = layout_of(case)
    marks, borders = layout.marks, layout.borders
    position, sizes = start, cycle(cuts)
    if start in marks:
        yield _event(case, layout, start, start, marks[start])
    size = next(sizes)
    while position < layout.end:
        end = min(position + size, layout.end)
        border = bisect_right(borders, position)
        if border < len(borders):
            end = min(end, borders[border])
        upcoming = next(sizes)
        alone = end == position or upcoming == 0
        yield _event(case, layout, position, end, None if alone else marks.get(end))
        if upcoming == 0 and end > position:
            yield _event(case, layout, end, end, marks.get(end))
        position, size = end, upcoming


def _event(case: Case, layout: Layout, start: int, end: int, watermark: int | None) -> StreamEvent:
    first, last = np.searchsorted(layout.positions, [start, end]).tolist()
    batch = case.batch.slice(first, last - first)
    return StreamEvent(end - batch.num_rows, batch, watermark, start)


# --- logs ------------------------------------------------------------------------------------


class FrameLog(Protocol):
    """Where a run keeps the frames that are durable."""

    def append(self, record: TurnRecord) -> None:
        """Make a record durable."""

    def newest_first(self) -> Iterator[Frame]:
        """All frames, backwards."""


class ListedFrames:
    """A list of frames that went through their bytes; it keeps only what recovery needs."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.needed = 0
        self._position = 0

    def append(self, record: TurnRecord) -> None:
        """Make a record durable."""
        encoded = encode_frame(
            record,
            log_id=1,
            epoch=1,
            sequence=len(self.frames),
            position=self._position,
            durable=0,
        )
        self._position += record.tuples
        self.frames.append(decode_frame(encoded))

    def newest_first(self) -> Iterator[Frame]:
        """As many of the newest frames as recovery said it needs, backwards."""
        return reversed(self.frames[len(self.frames) - self.needed :])


# --- output ----------------------------------------------------------------------------------


class Output(NamedTuple):
    """What a run put out: results and late tuples, in order, and how many were late."""

    results: pa.Table
    late: pa.Table
    late_tuples: int

    def check_same(self, expected: Output) -> None:
        """Both are the same, byte for byte; the error shows them as rows."""
        for name in ("results", "late"):
            found, wanted = getattr(self, name), getattr(expected, name)
            assert bytes_of(found) == bytes_of(wanted), (
                f"{name} differ:\n  found    {readable(found)}\n  expected {readable(wanted)}"
            )
        assert self.late_tuples == expected.late_tuples


def readable(table: pa.Table) -> list[tuple[object, ...]]:
    """A table as rows."""
    return [tuple(row.values()) for row in table.to_pylist()]


def bytes_of(table: pa.Table) -> list[bytes]:
    """Validity and values of every column; what lies behind a null is nobody's business."""
    found = []
    for column in table.columns:
        array = column.combine_chunks()
        found.append(pc.is_valid(array).to_numpy(zero_copy_only=False).tobytes())
        values = pa.record_batch([pc.drop_null(array)], ["values"])
        found.append(values.serialize().to_pybytes())
    return found


def late_schema(case: Case) -> pa.Schema:
    """Of late tuples: the input's; dictionaries are a transport encoding and are left out."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in case.schema
    ]
    return pa.schema(fields)


def output_of(case: Case, frames: list[Frame], late_tuples: int) -> Output:
    """What these frames emitted."""
    tables = []
    schemas = {RESULTS_OUTPUT: case.operator().output_schema, LATE_OUTPUT: late_schema(case)}
    for output, schema in schemas.items():
        batches = [result_batch(frame, schema, output) for frame in frames]
        tables.append(pa.Table.from_batches([each for each in batches if each], schema))
    results, late = tables
    return Output(results, late, late_tuples)


# --- runs ------------------------------------------------------------------------------------


def recovered(case: Case, life: Life, log: FrameLog) -> ContinuousEventualCheckpointing:
    """The operator as a new process finds it."""
    return ContinuousEventualCheckpointing.recover(
        case.operator(), life.policy.make(), log.newest_first()
    )


def failure_free(case: Case, life: Life = IMMORTAL) -> Output:
    """The output of one process that does not die."""
    return crashing(case, [], life)


def crashing(case: Case, lives: list[Life], last: Life) -> Output:
    """The output of processes that die one after the other, and of the last one, which does not.

    Checked on the way: recovery never asks for input that was acknowledged; no more frames are
    kept than the operator said it needs; its invariants hold after each turn.
    """
    log, acknowledged = ListedFrames(), -1
    with forgetting(case):
        for life in [*lives, last]:
            cec = recovered(case, life, log)
            assert cec.position > acknowledged, (
                f"input from {cec.position} on is needed, but {acknowledged} was acknowledged"
            )
            for number, event in enumerate(events(case, cec.position, life.cuts)):
                if number == life.turns:
                    break
                turn = cec.turn(event, float(number))
                if not cec.recovering:
                    cec.check_invariants()
                if life.lost and number + 1 == life.turns and turn.record is not None:
                    break
                if turn.record is not None:
                    log.append(turn.record)
                log.needed, acknowledged = cec.frames_needed, cec.acknowledged
                assert log.needed <= len(log.frames)
        return output_of(case, log.frames, cec.operator.late_tuples)
