"""A case of a join: two streams that meet, a join over them, and an oracle in plain Python.

As in `aggregate_cases`, everything is a plain value that can be read when a test fails.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aggregate_cases import CUTS, KEYS, TIMES, Row, instant_of
from aggregate_runs import ListedFrames, bytes_of
from hypothesis import strategies as st
from program_cases import ProgramLife, check_recorded

from rewake.log.results import result_batch
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.operators.expressions.expression import expression
from rewake.operators.fragment import FragmentProgram, OutputRoute
from rewake.operators.join import state as join_state
from rewake.operators.join.operator import Join, JoinSpec
from rewake.recovery.approach import Recovery, approach_named

_EPOCH = dt.datetime(1970, 1, 1)
HOWS = ("inner", "left", "right", "full", "semi", "anti")
_EVEN = "(v + v_right) % 2 = 0"


def _even(batch: pa.RecordBatch) -> pa.Array:
    return pc.equal(pc.bit_wise_and(pc.add(batch["v"], batch["v_right"]), 1), 0)


def _even_but_not_forty(batch: pa.RecordBatch) -> pa.Array:
    if 40 in batch["v"].to_pylist():
        raise ValueError("forty")
    return _even(batch)


_LARGEST = 2**63 - 1
Joined = dict[str, Any]
# SQL or a function, and the same of a result row.
CONDITIONS: dict[str, tuple[Any, Callable[[Joined], bool]]] = {
    "": (None, lambda _: True),
    "less": ("v < v_right", lambda row: _both(row) and row["v"] < row["v_right"]),
    "even": (_EVEN, lambda row: _both(row) and (row["v"] + row["v_right"]) % 2 == 0),
    "function": (_even, lambda row: _both(row) and (row["v"] + row["v_right"]) % 2 == 0),
    "null": ("v IS NULL OR s = 'a'", lambda row: row["v"] is None or row["s"] == "a"),
    "equal": ("v_right = v AND (1 = 1)", lambda row: _both(row) and row["v"] == row["v_right"]),
    "never": ("1 = 2", lambda _: False),
    "overflows": (f"v * {_LARGEST} >= 0", lambda row: row["v"] is not None and _product(row) >= 0),
    "fails": (_even_but_not_forty, lambda row: _not_forty(row) and CONDITIONS["even"][1](row)),
}
# Their failing pairs are diverted.
FAILING = ("overflows", "fails")


def _product(row: Joined) -> int:
    product = row["v"] * _LARGEST
    if abs(product) > _LARGEST:
        raise OverflowError
    return product


def _not_forty(row: Joined) -> bool:
    if row["v"] == 40:
        raise ValueError
    return True


def _both(row: Joined) -> bool:
    return row["v"] is not None and row["v_right"] is not None


class Came(NamedTuple):
    """A tuple of one of the inputs: its columns are keys, v, then s (left) or w (right), t."""

    side: int
    row: Row


@dataclass(frozen=True)
class JoinCase:
    """Two streams as they meet, and a join over them.

    `punctuations` are (tuples before it, time); `gaps` are (tuples before it, positions without).
    """

    keys: tuple[str, ...]
    came: tuple[Came, ...]
    within: int
    how: str = "inner"
    condition: str = ""
    slack: int = 0
    time: str = "int64"
    renamed: bool = False  # the right input has other names for keys and time
    punctuations: tuple[tuple[int, int], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    forgetful: bool = False  # forget tuples and keys at once
    cuts: tuple[int, ...] = (3,)

    # --- columns -----------------------------------------------------------------------------

    @property
    def on(self) -> tuple[tuple[str, str], ...]:
        """Pairs of equality columns."""
        right = "r" if self.renamed else "k"
        return tuple((f"k{i}", f"{right}{i}") for i in range(len(self.keys)))

    @functools.cached_property
    def names(self) -> tuple[list[str], list[str]]:
        """Column names of both inputs."""
        left, right = ([pair[side] for pair in self.on] for side in (0, 1))
        return [*left, "v", "s", "t"], [*right, "v", "w", "u" if self.renamed else "t"]

    @functools.cached_property
    def input_schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """Of both inputs."""
        kinds = [KEYS[kind][0] for kind in self.keys]
        others = (pa.string(), pa.bool_())
        left, right = (
            pa.schema(list(zip(names, [*kinds, pa.int64(), other, TIMES[self.time]], strict=True)))
            for names, other in zip(self.names, others, strict=True)
        )
        return left, right

    def batch(self, side: int, rows: list[Row]) -> pa.RecordBatch:
        """Tuples of an input."""
        schema = self.input_schemas[side]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def spec(self) -> JoinSpec:
        """What is computed."""
        where = CONDITIONS[self.condition][0]
        return JoinSpec(
            on=self.on,
            within=self.within,
            time=(self.names[0][-1], self.names[1][-1]),
            where=None if where is None else expression(where),
            how=self.how,
            slack=self.slack,
            late_outputs=True,
            on_error="divert" if self.diverts else "stop",
        )

    @property
    def diverts(self) -> bool:
        """Whether pairs that the condition fails for have an output of their own."""
        return self.condition in FAILING

    def operator(self) -> Join:
        """A new operator."""
        return self.spec().operator(*self.input_schemas)

    @functools.cached_property
    def program(self) -> FragmentProgram:
        """Results, the late tuples of both inputs, and failing pairs."""
        routes = tuple(OutputRoute(port) for port in ((0, 2, 3, 4) if self.diverts else (0, 2, 3)))
        return FragmentProgram(stateful=self.spec(), routes=routes)

    @functools.cached_property
    def schemas(self) -> list[pa.Schema]:
        """Of each output."""
        spec, given = self.spec(), self.input_schemas
        others = [spec.further_schema(name, *given) for name in spec.further_outputs]
        return [self.operator().output_schema, *others]

    # --- the stream --------------------------------------------------------------------------

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """Of each tuple."""
        gaps = np.zeros(len(self.came) + 1, np.int64)
        for place, size in self.gaps:
            gaps[place] = size
        return np.arange(len(self.came)) + np.cumsum(gaps)[: len(self.came)]

    @functools.cached_property
    def marks(self) -> dict[int, int]:
        """Watermarks by the position they are before, right behind a tuple."""
        behind = [0, *(self.positions + 1).tolist()]
        return {behind[place]: time for place, time in self.punctuations}

    @functools.cached_property
    def borders(self) -> list[int]:
        """Where stream events end anyhow: watermarks, other inputs, positions without tuples."""
        found = set(self.marks)
        for place in range(1, len(self.came)):
            after, before = int(self.positions[place]), int(self.positions[place - 1]) + 1
            if after > before or self.came[place].side != self.came[place - 1].side:
                found.add(before)
        return sorted(found)

    def events(self, start: int, cuts: tuple[int, ...]) -> Iterator[StreamEvent]:
        """The input from `start` on; a cut of 0 is an event without tuples."""
        end = int(self.positions[-1]) + 1 if self.came else 0
        position, sizes = start, itertools.cycle(cuts)
        if start in self.marks:
            yield self._event(start, start, self.marks[start])
        size = next(sizes)
        while position < end:
            until = min(position + size, end)
            border = bisect_right(self.borders, position)
            if border < len(self.borders):
                until = min(until, self.borders[border])
            upcoming = next(sizes)
            alone = until == position or upcoming == 0
            yield self._event(position, until, None if alone else self.marks.get(until))
            if upcoming == 0 and until > position:
                yield self._event(until, until, self.marks.get(until))
            position, size = until, upcoming

    def _event(self, start: int, end: int, watermark: int | None) -> StreamEvent:
        first, last = np.searchsorted(self.positions, [start, end]).tolist()
        came = self.came[first:last]
        side = came[0].side if came else 0
        batch = self.batch(side, [each.row for each in came])
        return StreamEvent(end - len(came), batch, watermark, start, side)


# --- the oracle ------------------------------------------------------------------------------


class Expected(NamedTuple):
    """What a join must put out: results, late tuples by input, failing pairs."""

    results: list[Row]
    late: tuple[list[Row], list[Row]]
    dead: list[Row]


class Oracle:
    """The rule of a join, tuple by tuple, with lists."""

    def __init__(self, case: JoinCase) -> None:
        self.case = case
        self.clock = NO_TIME
        self.reached = [NO_TIME, NO_TIME]
        self.held: tuple[list[list[Any]], list[list[Any]]] = ([], [])  # [row, met, decided]
        self.found = Expected([], ([], []), [])

    def emits(self, side: int) -> bool:
        """Whether tuples of an input are emitted that met nobody."""
        return self.case.how in (("left", "full", "anti"), ("right", "full"))[side]

    def run(self) -> Expected:
        """The whole stream."""
        marks = dict(self.case.punctuations)
        for place, (side, row) in enumerate(self.case.came):
            self.watermark(marks.get(place, NO_TIME))
            self.arrive(side, row)
        self.watermark(marks.get(len(self.case.came), NO_TIME))
        return self.found

    def watermark(self, time: int) -> None:
        """Nothing before this is expected any more."""
        self.clock = max(self.clock, time, min(self.reached))
        self.reached = [max(each, self.clock) for each in self.reached]
        self.decide()

    def arrive(self, side: int, row: Row) -> None:
        """A tuple."""
        case, time, keys = self.case, instant_of(row[-1]), row[: len(self.case.keys)]
        if None in keys and not self.emits(side):
            return
        self.reached[side] = max(self.reached[side], time - case.slack)
        self.watermark(NO_TIME)
        if self.clock >= (time // case.within + 1) * case.within:
            self.found.late[side].append(row)
            return
        mine = [row, False, False]
        for other in self.held[1 - side]:
            pair = (mine, other) if side == 0 else (other, mine)
            if self.joins(pair[0][0], pair[1][0]):
                if case.how == "semi" and not pair[0][1]:
                    self.found.results.append(pair[0][0])
                elif case.how not in ("semi", "anti"):
                    self.found.results.append(self.joined(pair[0][0], pair[1][0]))
                mine[1] = other[1] = True
        self.held[side].append(mine)

    def joins(self, left: Row, right: Row) -> bool:
        """Whether two tuples are a pair."""
        count = len(self.case.keys)
        if None in left[:count] or left[:count] != right[:count]:
            return False
        if abs(instant_of(left[-1]) - instant_of(right[-1])) >= self.case.within:
            return False
        names = ["v", "s", "v_right"]
        values = (left[count], left[count + 1], right[count])
        try:
            return CONDITIONS[self.case.condition][1](dict(zip(names, values, strict=True)))
        except (OverflowError, ValueError):
            self.found.dead.append(self.joined(left, right))
            return False

    def joined(self, left: Row | None, right: Row | None) -> Row:
        """A result; None is no tuple."""
        count = len(self.case.keys)
        time = max(row[-1] for row in (left, right) if row is not None)
        first = left or (
            (None,) * (count + 2) if self.case.renamed else (*right[:count], None, None)
        )
        second = right or (None,) * (count + 3)
        return (*first[: count + 2], time, *second[0 if self.case.renamed else count :])

    def decide(self) -> None:
        """Emit what cannot meet anybody any more."""
        within = self.case.within
        due = []
        for side in (0, 1):
            for place, each in enumerate(self.held[side]):
                pane = instant_of(each[0][-1]) // within
                if not each[2] and self.clock >= (pane + 2) * within:
                    each[2] = True
                    if self.emits(side) and not each[1]:
                        due.append((pane, side, place))
        for _, side, place in sorted(due):
            row = self.held[side][place][0]
            if self.case.how != "anti":
                row = self.joined(row, None) if side == 0 else self.joined(None, row)
            self.found.results.append(row)


# --- strategies ------------------------------------------------------------------------------

_STEPS = [0, 1, 1, 0, 2, 7, -1, -3, -9]


@functools.cache
def _key_rows(keys: tuple[str, ...]) -> list[Row]:
    if len(keys) == 1:
        return [(value,) for value in KEYS[keys[0]][1]]
    return list(itertools.product(*(KEYS[kind][1][:3] for kind in keys)))[:8]


_KEY_KINDS = [("int64",), ("string",), ("int64", "string"), ("int8",), ("uint64",), ("bool",)]
_KEY_KINDS += [("dictionary",), ("float64",), ("binary", "date32"), ("timestamp", "uint8")]
_KEY_KINDS += [("int8", "date32"), ("bool", "uint8", "int8")]  # these are packed into one integer


@st.composite
def _came(draw: st.DrawFn, keys: tuple[str, ...], time: str) -> list[Came]:
    least = draw(st.sampled_from([0, 8, 25]))
    known = _key_rows(keys)[: draw(st.sampled_from([1, 3, 8]))]
    one = st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from(known),
        st.sampled_from([0, 1, None, -7, 40]),
        st.sampled_from([0, 1, 2]),
        st.sampled_from(_STEPS),
    )
    now = draw(st.sampled_from([0, 0, -20, 10**6]))
    ahead = draw(st.sampled_from([0, 0, 5, 40]))  # of the right input
    came = []
    for side, key, value, other, step in draw(st.lists(one, min_size=least, max_size=least + 20)):
        now += max(step, 0)
        instant: Any = now + min(step, 0) + side * ahead
        if time == "timestamp":
            instant = _EPOCH + dt.timedelta(milliseconds=instant)
        third = (["a", None, "bc"], [True, None, False])[side][other]
        came.append(Came(side, (*key, value, third, instant)))
    return came


@st.composite
def join_cases(draw: st.DrawFn, hows: tuple[str, ...] = HOWS) -> JoinCase:
    """Any two streams and any join."""
    keys = draw(st.sampled_from(_KEY_KINDS))
    time = draw(st.sampled_from(["int64", "int64", "timestamp"]))
    came = draw(_came(keys, time))
    marks = st.tuples(st.integers(0, len(came)), st.sampled_from([0, 2, 5, -3, 40]))
    punctuations = {}
    for after, ahead in draw(st.lists(marks, max_size=4)):
        latest = max([instant_of(each.row[-1]) for each in came[:after]], default=0)
        punctuations[after] = latest + ahead
    gaps = st.dictionaries(st.integers(0, len(came)), st.sampled_from([1, 2, 7, 40]), max_size=3)
    return JoinCase(
        keys=keys,
        came=tuple(came),
        within=draw(st.sampled_from([1, 2, 3, 5, 8, 20])),
        how=draw(st.sampled_from(hows)),
        condition=draw(st.sampled_from(["", "", *CONDITIONS])),
        slack=draw(st.sampled_from([0, 0, 1, 4, 100])),
        time=time,
        renamed=draw(st.booleans()),
        punctuations=tuple(sorted(punctuations.items())),
        gaps=tuple(sorted(draw(gaps).items())),
        forgetful=draw(st.booleans()),
        cuts=draw(CUTS),
    )


# --- runs ------------------------------------------------------------------------------------


class JoinOutput(NamedTuple):
    """What each output got, in order, and how many tuples were late."""

    tables: list[pa.Table]
    late_tuples: int

    def check_same(self, expected: JoinOutput) -> None:
        """Both are the same, byte for byte; the error shows them as rows."""
        for output, pair in enumerate(zip(self.tables, expected.tables, strict=True)):
            assert bytes_of(pair[0]) == bytes_of(pair[1]), (
                f"output {output} differs:\n  found    {rows_of(pair[0])}\n  "
                f"expected {rows_of(pair[1])}"
            )
        assert self.late_tuples == expected.late_tuples


def rows_of(table: pa.Table) -> list[Row]:
    """A table as rows."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def hurried(case: JoinCase) -> ExitStack:
    """While in this context, a forgetful case forgets at once, and looks at few pairs at a time."""
    stack = ExitStack()
    if case.forgetful:
        stack.enter_context(mock.patch.object(join_state, "SPARE", -1))
        stack.enter_context(mock.patch.object(join_state, "MOST_PAIRS", 2))
    return stack


def built(case: JoinCase, name: str, life: ProgramLife, log: ListedFrames) -> Recovery:
    """The fragment as a new process finds it."""
    approach = approach_named(name, **dict(life.settings))
    operator = case.program.operator(*case.input_schemas)
    return approach.build(operator, case.program.emit, log.newest_first())


def run(
    case: JoinCase,
    name: str,
    crashes: list[ProgramLife],
    last: ProgramLife,
    *,
    silent: bool = False,
    early: bool = False,
) -> JoinOutput:
    """The output of processes that die one after the other, and of the last one.

    To a process that replays, with `silent` no watermark is repeated; with `early` every stream
    event says the last one of what is replayed.
    """
    log, acknowledged = ListedFrames(), -1
    with hurried(case):
        for life in [*crashes, last]:
            driven = built(case, name, life, log)
            assert driven.position > acknowledged, "input that was acknowledged is needed"
            for number, event in enumerate(case.events(driven.position, life.cuts)):
                if number == life.turns:
                    break
                through = driven.replay_through
                if (silent or early) and event.end <= through:
                    marks = [case.marks[at] for at in case.marks if at <= through]
                    time = max(marks, default=None) if early else None
                    event = replace(event, watermark=time)  # noqa: PLW2901
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
        tables = []
        for output, schema in enumerate(case.schemas):
            batches = [result_batch(frame, schema, output) for frame in log.frames]
            tables.append(pa.Table.from_batches([each for each in batches if each], schema))
        return JoinOutput(tables, driven.operator.late_tuples)
