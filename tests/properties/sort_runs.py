"""Running an operator of any number of inputs: failure-free, and through processes that die.

A stream is a line of entries, one for each position: a tuple of a port, or nothing.  Watermarks
stand between entries.  Stream events are cut anew in every life; each holds tuples of one port.
The entries of a case come from a seed: drawing them one by one costs more than running them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from aggregate_runs import ListedFrames, bytes_of, readable
from hypothesis import strategies as st
from program_cases import SETTINGS

from rewake.log.frame import Frame
from rewake.log.results import result_batch
from rewake.model.errors import DamagedData
from rewake.model.stream_event import END_OF_TIME, StreamEvent
from rewake.operators.columns.arrays import Int32s
from rewake.operators.columns.plain import plain_schema
from rewake.operators.stateful import (
    FURTHER_PORTS,
    LATE_PORT,
    RESULTS_PORT,
    Emissions,
    Outcome,
    StatefulOperator,
    StatefulSpec,
    StoredParts,
)
from rewake.recovery.approach import Recovery, approach_named, by_port
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy, Extent

Entry = tuple[int, tuple[Any, ...]] | None


@dataclass(frozen=True)
class Line:
    """A stream of `entries` (port and row, or nothing), and watermarks by the entries before."""

    schemas: tuple[pa.Schema, ...]
    entries: tuple[Entry, ...]
    marks: tuple[tuple[int, int], ...] = ()

    @cached_property
    def watermarks(self) -> dict[int, int]:
        """By position."""
        return dict(self.marks)

    def batch(self, port: int, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        """Rows of a port as a batch."""
        schema = self.schemas[port]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _event(self, start: int, most: int) -> StreamEvent:
        """The stream event at `start`: nothing for a while, then tuples of one port."""
        end, rows, port = start, [], 0
        while end < most:
            entry = self.entries[end]
            if rows and (entry is None or entry[0] != port):
                break
            if entry is not None:
                port = entry[0]
                rows.append(entry[1])
            end += 1
            if end in self.watermarks:
                break
        return StreamEvent(end - len(rows), self.batch(port, rows), None, start, port)

    def events(self, start: int, cuts: tuple[int, ...], quiet: int = -1) -> Iterator[StreamEvent]:
        """The input from `start` on; watermarks before `quiet` do not come again."""
        marks = {at: time for at, time in self.marks if at >= quiet}
        position, sizes = start, cycle(cuts)
        if start in marks:
            yield StreamEvent(start, self.batch(0, []), marks[start])
        size = next(sizes)
        while position < len(self.entries):
            event = self._event(position, min(position + size, len(self.entries)))
            upcoming = next(sizes)
            mark = marks.get(event.end) if event.end > position else None
            if mark is not None and upcoming != 0:
                yield StreamEvent(event.position, event.batch, mark, event.start, event.port)
            else:
                yield event
                if mark is not None:
                    yield StreamEvent(event.end, self.batch(0, []), mark)
            position, size = event.end, upcoming


SIZES = st.sampled_from([24, 40, 0, 3, 10])


def some_marks(random: np.random.Generator, latest: list[int], ahead: list[int]) -> dict[int, int]:
    """Watermarks at some places, each about where time has come; perhaps one at the end."""
    places = random.integers(0, len(latest) + 1, random.integers(0, 10)).tolist()
    marks = {at: max(latest[:at], default=0) + int(random.choice(ahead)) for at in places}
    return marks | ({len(latest): END_OF_TIME} if random.random() < 0.5 else {})


class Life(NamedTuple):
    """One process, as in `program_cases`.  With `quiet`, replayed watermarks do not come again."""

    cuts: tuple[int, ...] = (1,)
    settings: tuple[tuple[str, Any], ...] = ()
    turns: int = -1
    lost: bool = False
    bare: bool = False
    quiet: bool = False


# Mostly small, so that processes die in the midst of things.
CUTS = st.sampled_from([(1,), (2,), (1, 0, 4), (3, 1), (5, 2, 0), (7,), (40,)])


class RandomChecks(CheckpointPolicy):
    """A policy that snapshots any parts at any time, the same ones for the same seed."""

    def __init__(self, seed: int, share: float) -> None:
        self._random = np.random.default_rng(seed)
        self._share = share

    def checks(self, extent: Extent) -> Int32s:
        """Each open part with the same chance."""
        slots = np.flatnonzero(extent.operator.opened_at >= 0).astype(np.int32)
        return slots[self._random.random(slots.size) < self._share]


# Continuous eventual checkpointing with those.
RANDOM = "cec, random checks"


def _built(name: str, life: Life, operator: StatefulOperator, frames: Iterator[Frame]) -> Recovery:
    if name != RANDOM:
        return approach_named(name, **dict(life.settings)).build(operator, _every_port, frames)
    policy = RandomChecks(**dict(life.settings or (("seed", 0), ("share", 0.5))))
    return ContinuousEventualCheckpointing.recover(operator, policy, frames, _every_port)


def _settings_of(name: str) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    if name != RANDOM:
        return SETTINGS.get(name, st.just(()))
    shares = st.sampled_from([0.0, 0.2, 0.5, 1.0])
    return st.tuples(
        st.tuples(st.just("seed"), st.integers(0, 99)), st.tuples(st.just("share"), shares)
    )


def lives_of(name: str) -> st.SearchStrategy[tuple[list[Life], Life]]:
    """Processes of an approach that die, and a last one that does not."""
    settings = _settings_of(name)
    quiet = st.booleans()
    flag = st.booleans()
    turns = st.sampled_from([9, 0, 2, 4, 6, 12, 20])
    crash = st.builds(Life, CUTS, settings, turns, flag, flag, quiet)
    last = st.builds(Life, CUTS, settings, st.just(-1), st.just(False), flag, quiet)
    return st.tuples(st.lists(crash, min_size=1, max_size=4), last)


class Output(NamedTuple):
    """What each output got, in order, and how many tuples were late."""

    tables: dict[int, pa.Table]
    late_tuples: int

    def check_same(self, expected: Output) -> None:
        """Both are the same on every output, byte for byte; the error shows them as rows."""
        for output, wanted in expected.tables.items():
            found = self.tables[output]
            assert bytes_of(found) == bytes_of(wanted), (
                f"output {output} differs:\n  found    {readable(found)}\n  "
                f"expected {readable(wanted)}"
            )
        assert self.late_tuples == expected.late_tuples


def schemas_of(spec: StatefulSpec, line: Line) -> dict[int, pa.Schema]:
    """The columns of each output."""
    schemas = {RESULTS_PORT: spec.operator(*line.schemas).output_schema}
    if spec.route_late:
        schemas[LATE_PORT] = plain_schema(line.schemas[0])
    for number, output in enumerate(spec.further_outputs):
        schemas[FURTHER_PORTS + number] = spec.further_schema(output, *line.schemas)
    return schemas


def _every_port(outcome: Outcome) -> Emissions:
    return [*by_port(outcome), *outcome.others]


def _alive(line: Line, driven: Recovery, life: Life) -> Iterator[tuple[int, StreamEvent]]:
    quiet = driven.replay_through + 1 if life.quiet else -1
    for number, event in enumerate(line.events(driven.position, life.cuts, quiet)):
        if number == life.turns:
            return
        yield number, event


def run(
    spec: StatefulSpec,
    line: Line,
    name: str,
    crashes: list[Life],
    last: Life,
    around: AbstractContextManager[Any] | None = None,
) -> Output:
    """The output of processes that die one after the other, and of the last one.

    Checked on the way: recovery asks for no input that was acknowledged and no frame that was not
    needed; what always holds of an approach holds after each turn.
    """
    log, acknowledged = ListedFrames(), -1
    with around or nullcontext():
        for life in [*crashes, last]:
            operator = spec.operator(*line.schemas)
            driven = _built(name, life, operator, log.newest_first())
            assert driven.position > acknowledged, "input that was acknowledged is needed"
            for number, event in _alive(line, driven, life):
                turn = driven.turn(event, float(number))
                record = turn.record
                if record is None and life.bare and event.watermark is not None:
                    record = None if driven.recovering else driven.bare_record()
                if not driven.recovering:
                    driven.check_invariants()
                if life.lost and number + 1 == life.turns and record is not None:
                    break
                if record is not None:
                    log.append(record)
                log.needed, acknowledged = driven.frames_needed, driven.acknowledged
                assert log.needed <= len(log.frames)
        return output_of(spec, line, log.frames, operator.late_tuples)


def output_of(spec: StatefulSpec, line: Line, frames: list[Frame], late_tuples: int) -> Output:
    """What these frames emitted on each output."""
    tables = {}
    for output, schema in schemas_of(spec, line).items():
        batches = [result_batch(frame, schema, output) for frame in frames]
        tables[output] = pa.Table.from_batches([each for each in batches if each], schema)
    return Output(tables, late_tuples)


# --- damage ----------------------------------------------------------------------------------


def _damaged(draw: st.DrawFn, column: np.ndarray) -> np.ndarray:
    """A stored column with some of its bytes changed, or not as long as it was."""
    data = bytearray(column.tobytes())
    for place, byte in draw(_FLIPS):
        if data:
            data[place % len(data)] = byte
    values = np.frombuffer(bytes(data), column.dtype)
    return values[: values.size - draw(st.sampled_from([0, 0, 0, 1]))]


_FLIPS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6)


@st.composite
def damaged_parts(draw: st.DrawFn, operator: StatefulOperator, position: int) -> StoredParts:
    """A snapshot of all parts of an operator, as an enemy would give it back."""
    slots = np.flatnonzero(operator.opened_at >= 0)
    columns = operator.snapshot_columns(slots)
    chosen = draw(st.sets(st.sampled_from(range(len(columns)))))
    columns = [
        _damaged(draw, column) if place in chosen else column
        for place, column in enumerate(columns)
    ]
    applied = np.full(slots.size, position - 1, np.int64)
    rows = [np.arange(slots.size)]
    return StoredParts(operator.ids_of(slots), applied, [columns], rows, [slots.size])


def survives_damage(spec: StatefulSpec, line: Line, data: st.DataObject, most: int) -> None:
    """Restoring what an enemy wrote is refused as damage, or gives an operator that works."""
    original = spec.operator(*line.schemas)
    position = 0
    for event in line.events(0, (7,)):
        if position >= most:
            break
        original.process(event)
        position = event.end
    parts = data.draw(damaged_parts(original, position))
    nothing = StoredParts(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], [])
    copy = spec.operator(*line.schemas)
    try:
        copy.restore(nothing, parts, clock=original.clock, late_tuples=0)
        copy.end_replay()
    except DamagedData:
        return
    for event in line.events(position, (7,)):
        copy.process(event)
    copy.snapshot_columns(np.flatnonzero(copy.opened_at >= 0))
    copy.punctuate(len(line.entries), END_OF_TIME)
