"""Fragments' programs around the cases' aggregates, and the lives of processes that run them.

As in `aggregate_cases`, everything is a plain value that can be read when a test fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from aggregate_cases import CUTS, Case, cases
from aggregate_runs import ListedFrames, events, forgetting
from hypothesis import strategies as st

from rewake.log.frame import Frame
from rewake.log.results import result_batch
from rewake.model.stream_event import StreamEvent
from rewake.operators.expressions.expression import ArrowFunction
from rewake.operators.fragment import (
    FilterStep,
    FragmentProgram,
    MapStep,
    OutputRoute,
    StatelessStep,
)
from rewake.operators.splitting import SplitStep
from rewake.operators.stateful import FURTHER_PORTS
from rewake.recovery.approach import Recovery, approach_named

# --- steps -----------------------------------------------------------------------------------


def _some(batch: pa.RecordBatch) -> pa.Array:
    """Leaves out about a third, and the nulls."""
    return pc.not_equal(batch.column("v"), 0)


def _late_ones_too(batch: pa.RecordBatch) -> pa.Array:
    return pc.is_valid(batch.column("f"))


def _first_is_there(batch: pa.RecordBatch) -> pa.Array:
    return pc.is_valid(batch.column(batch.num_columns - 1))


def _column(name: str, batch: pa.RecordBatch) -> pa.Array:
    return batch.column(name)


def _twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each tuple twice, and those without a value not at all."""
    valid = pc.indices_nonzero(pc.is_valid(batch.column("v"))).to_numpy()
    return batch.take(pa.array(valid.repeat(2), pa.int64()))


def _copied(names: list[str]) -> MapStep:
    """The same columns, in another order."""
    formulas = [(name, ArrowFunction(partial(_column, name))) for name in reversed(names)]
    return MapStep(tuple(formulas), "copied")


# --- programs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgramCase:
    """A stream, a program over it, and how stream events are cut where that must not change."""

    case: Case
    before: tuple[str, ...] = ()
    stateful: bool = True
    after: tuple[str, ...] = ()
    parts: int = 1
    twice: bool = False
    cuts: tuple[int, ...] = (3,)
    divided: bool = False  # by a split, without state

    @cached_property
    def program(self) -> FragmentProgram:
        """The program that all lives share."""
        if self.divided:
            before = self._steps(self.before, self.case.names)
            split = SplitStep((("some", FilterStep(_some)),), "rest")
            routes = tuple(OutputRoute(FURTHER_PORTS + number) for number in range(2))
            return FragmentProgram(before, routes=routes, split=split)
        spec = self.case.spec() if self.stateful else None
        keys = tuple(self.case.by)
        routes = [OutputRoute(0, keys, part, self.parts) for part in range(self.parts)]
        routes += [OutputRoute()] if self.twice else []
        routes += [OutputRoute(1)] if self.stateful else []
        before = self._steps(self.before, self.case.names)
        results = self.case.operator().output_schema.names if self.stateful else self.case.names
        after = self._steps(self.after, results)
        return FragmentProgram(before, spec, after, routes=tuple(routes))

    def _steps(self, kinds: tuple[str, ...], names: list[str]) -> tuple[StatelessStep, ...]:
        made: dict[str, StatelessStep] = {
            "some": FilterStep(_some, "some"),
            "valid": FilterStep(_late_ones_too, "valid"),
            "last": FilterStep(_first_is_there, "last"),
            "copied": _copied(names),
            "twice": MapStep((("", _twice),), "twice", many=True),
        }
        return tuple(made[kind] for kind in kinds)

    @property
    def schemas(self) -> list[pa.Schema]:
        """Of each output."""
        schema = self.case.schema
        if self.divided:
            return [self.program.output_schema(schema)] * 2
        by_port = [self.program.output_schema(schema)]
        by_port += [*self.program.given_schemas(schema)] if self.stateful else []
        return [by_port[route.port] for route in self.program.routes]

    def events(self, position: int, cuts: tuple[int, ...]) -> Iterator[StreamEvent]:
        """The input from `position` on: cut anew if that cannot matter, else as it always was."""
        if self.program.operator(self.case.schema).divisible:
            yield from events(self.case, position, cuts)
            return
        for event in events(self.case, 0, self.cuts):
            if event.start >= position:
                yield event


_BEFORE = [(), ("some",), ("copied",), ("valid", "copied"), ("copied", "some")]
# Where no state follows, tuples may become more.
_ALONE = [*_BEFORE, ("twice",), ("some", "twice"), ("twice", "copied")]
_AFTER = [(), ("last",), ("copied",), ("copied", "last")]


@st.composite
def program_cases(draw: st.DrawFn) -> ProgramCase:
    """Any stream with steps before and after an aggregate, or steps alone, and a shuffle."""
    stateful = draw(st.sampled_from([True, True, True, False]))
    return ProgramCase(
        case=draw(cases()),
        before=draw(st.sampled_from(_BEFORE if stateful else _ALONE)),
        stateful=stateful,
        divided=not stateful and draw(st.booleans()),
        after=draw(st.sampled_from(_AFTER)),
        parts=draw(st.integers(1, 3)),
        twice=draw(st.booleans()),
        cuts=draw(CUTS),
    )


# --- lives -----------------------------------------------------------------------------------


class ProgramLife(NamedTuple):
    """One process: how it cuts the input, its approach's settings, when it dies (-1: never).

    With `lost`, the record of its last turn never became durable; with `bare`, watermarks that
    left no record leave a bare one.
    """

    cuts: tuple[int, ...] = (1,)
    settings: tuple[tuple[str, Any], ...] = ()
    turns: int = -1
    lost: bool = False
    bare: bool = False


def _settings(**choices: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[tuple[str, Any], ...]]:
    return st.fixed_dictionaries(choices).map(lambda chosen: tuple(chosen.items()))


SETTINGS: dict[str, st.SearchStrategy[tuple[tuple[str, Any], ...]]] = {
    "cec": st.one_of(
        st.just(()),
        _settings(
            records=st.sampled_from([0, 2, 5, 12]),
            tuples=st.sampled_from([0, 2, 5, None]),
            interval_ms=st.just(1),
            period_ms=st.sampled_from([1, 3]),
            check_us=st.sampled_from([1000, 300, 1]),
        ),
        _settings(
            shot_every=st.integers(1, 10),
            shot_slow_after=st.integers(0, 10),
            shot_windows=st.integers(1, 4),
        ),
        _settings(patience=st.sampled_from([1, 0.1, 5]), period_ms=st.sampled_from([0, 2])),
    ),
    "instant": st.one_of(
        _settings(every_tuples=st.sampled_from([1, 3, 10]), full_every=st.integers(1, 4)),
        _settings(
            every_tuples=st.none(), every_turns=st.integers(1, 4), full_every=st.integers(1, 3)
        ),
        st.just(()),
    ),
}


def lives_of(name: str) -> st.SearchStrategy[tuple[list[ProgramLife], ProgramLife]]:
    """Processes of an approach that die, and a last one that does not."""
    settings = SETTINGS.get(name, st.just(()))
    crash = st.builds(ProgramLife, CUTS, settings, st.integers(0, 15), st.booleans(), st.booleans())
    last = st.builds(ProgramLife, CUTS, settings, st.just(-1), st.just(False), st.booleans())
    return st.tuples(st.lists(crash, min_size=1, max_size=4), last)


# --- runs ------------------------------------------------------------------------------------


class ProgramOutput(NamedTuple):
    """What each output got, in order, and how many tuples were late."""

    tables: list[pa.Table]
    late_tuples: int


def built(case: ProgramCase, name: str, life: ProgramLife, log: ListedFrames) -> Recovery:
    """The fragment as a new process finds it."""
    approach = approach_named(name, **dict(life.settings))
    operator = case.program.operator(case.case.schema)
    return approach.build(operator, case.program.emit, log.newest_first())


def run(
    case: ProgramCase, name: str, crashes: list[ProgramLife], last: ProgramLife
) -> ProgramOutput:
    """The output of processes that die one after the other, and of the last one.

    Checked on the way, as in `aggregate_runs.crashing`: recovery asks for no input that was
    acknowledged and no frame that was not needed; what is forwarded is what was recorded.
    """
    log, acknowledged = ListedFrames(), -1
    with forgetting(case.case):
        for life in [*crashes, last]:
            driven = built(case, name, life, log)
            assert driven.position > acknowledged, "input that was acknowledged is needed"
            for number, event in enumerate(case.events(driven.position, life.cuts)):
                if number == life.turns:
                    break
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
                    check_recorded(log.frames[-1], turn.outputs, case.schemas)
                log.needed, acknowledged = driven.frames_needed, driven.acknowledged
                assert log.needed <= len(log.frames)
        return output_of(case, log.frames, driven.operator.late_tuples)


def check_recorded(frame: Frame, outputs: Any, schemas: list[pa.Schema]) -> None:
    """What is forwarded is what was recorded, and positions count all of it."""
    assert frame.tuples == sum(batch.num_rows for _, batch in outputs)
    forwarded = dict(outputs)
    for output, schema in enumerate(schemas):
        recorded = result_batch(frame, schema, output)
        assert (recorded is None) == (output not in forwarded)
        if recorded is not None:
            assert recorded.num_rows == forwarded[output].num_rows > 0


def output_of(case: ProgramCase, frames: list[Frame], late_tuples: int) -> ProgramOutput:
    """What these frames emitted on each output."""
    tables = []
    for output, schema in enumerate(case.schemas):
        batches = [result_batch(frame, schema, output) for frame in frames]
        tables.append(pa.Table.from_batches([each for each in batches if each], schema))
    return ProgramOutput(tables, late_tuples)
