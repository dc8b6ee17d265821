"""Streams and sorts over them, as plain values, and what a sort must give, in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from sort_runs import SIZES, Line, some_marks

from rewake.model.stream_event import END_OF_TIME
from rewake.operators.columns import keys as key_columns
from rewake.operators.sorting import buffers
from rewake.operators.sorting import operator as sorting
from rewake.operators.sorting.operator import SortSpec

_EPOCH = dt.datetime(1970, 1, 1)
NAMES = ["t", "f", "b", "k", "s", "n"]


@dataclass(frozen=True)
class SortCase:
    """A sort of a stream; `block`, `spare`, `keys`, `many` are sizes that make no difference."""

    line: Line
    spec: SortSpec
    block: int = 64
    spare: int = 4096
    keys: int = 65_536
    many: int = 64

    def patched(self) -> ExitStack:
        """While in this context, those sizes are as the case says."""
        stack = ExitStack()
        names = {"LEAST_BLOCK": self.block, "SPARE_ROWS": self.spare}
        for name, value in names.items():
            stack.enter_context(mock.patch.object(sorting, name, value))
        stack.enter_context(mock.patch.object(key_columns, "SPARE_KEYS", self.keys))
        stack.enter_context(mock.patch.object(buffers, "MANY", self.many))
        return stack


def schema(time: str) -> pa.Schema:
    """Of the input; `time` is the type of the time column."""
    kinds = [
        pa.int64() if time == "int64" else pa.timestamp("ms"),
        pa.float32(),
        pa.bool_(),
        pa.int16(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8()),
    ]
    return pa.schema(list(zip(NAMES, kinds, strict=True)))


_STEPS = [0, 1, 1, 2, -1, -3, -9, 7, 0]
_FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e-40]
_KEYS = [0, 1, None, -1]
_STRINGS = ["", "a", None]
_LISTS = [None, [], [1], [None, 2]]


def _line(seed: int, size: int, time: str, keys: int) -> Line:
    random = np.random.default_rng(seed)
    now, entries, latest = 0, [], []
    for _ in range(size):
        step, pick = int(random.choice(_STEPS)), int(random.integers(24))
        now += max(step, 0)
        latest.append(now)
        at: Any = now + min(step, 0)
        at = at if time == "int64" else _EPOCH + dt.timedelta(milliseconds=at)
        rest = (bool(pick % 2), _KEYS[pick % keys], _STRINGS[pick % 3], _LISTS[pick // 6])
        row = (at, float(random.choice(_FLOATS)), *rest)
        entries.append((0, row) if random.random() < 0.95 else None)
    marks = some_marks(random, latest, [-3, -6, -10, -1, 2])
    return Line((schema(time),), tuple(entries), tuple(sorted(marks.items())))


@st.composite
def sort_cases(draw: st.DrawFn) -> SortCase:
    """Any stream, any sort."""
    time = draw(st.sampled_from(["int64", "timestamp"]))
    line = _line(draw(st.integers(0, 10**6)), draw(SIZES), time, draw(st.integers(1, 4)))
    flush = draw(st.booleans())
    orders = [("t",), ("t", "f")] if flush else [("t",), ("f",), ("b", "f"), ("b", "t")]
    spec = SortSpec(
        by=draw(st.sampled_from(orders)),
        buffer=draw(st.sampled_from([5, 1, 2, 3, 8, 13])),
        per=draw(st.sampled_from([(), ("k",), ("s", "b")])),
        flush=flush,
        descending=not flush and draw(st.booleans()),
        route_late=draw(st.booleans()),
    )
    block, spare = draw(st.sampled_from([1, 2, 4, 64])), draw(st.sampled_from([0, 3, 4096]))
    keys = draw(st.sampled_from([65_536, -1000]))
    return SortCase(line, spec, block, spare, keys, many=draw(st.sampled_from([1, 64])))


# --- the oracle ------------------------------------------------------------------------------


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def oracle(case: SortCase) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What leaves, in order, and which came too late: the definition, tuple by tuple.

    Those that came too late are among what leaves, too, unless they are routed.
    """
    spec, line = case.spec, case.line
    buffers: dict[Any, list[Any]] = defaultdict(list)
    greatest: dict[Any, Any] = {}
    out, late, clock = [], [], -math.inf
    pick = [NAMES.index(name) for name in spec.by]
    per = [NAMES.index(name) for name in spec.per]

    def order(row: tuple[Any, ...]) -> Any:
        keys = [_comparable(row[place]) for place in pick]
        return tuple(_Reversed(key) for key in keys) if spec.descending else tuple(keys)

    def passed(row: tuple[Any, ...]) -> bool:
        return clock == math.inf or (spec.flush and _instant(row[pick[0]]) < clock)

    for position in range(len(line.entries) + 1):
        if position in line.watermarks:
            time = line.watermarks[position]
            clock = max(clock, math.inf if time == END_OF_TIME else time)
            leaving = []
            for owner, buffer in buffers.items():
                leaving += [each for each in buffer if passed(each[2])]
                buffers[owner] = [each for each in buffer if not passed(each[2])]
            out += [row for *_, row in sorted(leaving, key=lambda each: each[:2])]
        entry = line.entries[position] if position < len(line.entries) else None
        if entry is None:
            continue
        row = entry[1]
        owner = tuple(row[place] for place in per)
        if passed(row) or (owner in greatest and order(row) < greatest[owner]):
            late.append(row)
            out += [] if spec.route_late else [row]
            continue
        buffers[owner].append((order(row), position, row))
        if len(buffers[owner]) == spec.buffer:
            smallest = min(buffers[owner], key=lambda each: each[:2])
            buffers[owner].remove(smallest)
            greatest[owner] = max(greatest.get(owner, smallest[0]), smallest[0])
            out.append(smallest[2])
    return out, late


class _Reversed:
    """A key whose order is turned around."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __gt__(self, other: _Reversed) -> bool:
        return bool(other.key > self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)


def _instant(time: Any) -> int:
    return time if isinstance(time, int) else int((time - _EPOCH) / dt.timedelta(milliseconds=1))
