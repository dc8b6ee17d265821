"""Two streams and resamples of one at the times of the other, and what they must give."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from sort_runs import SIZES, Line, some_marks

from rewake.model.stream_event import END_OF_TIME
from rewake.operators.columns import keys as key_columns
from rewake.operators.resampling import tuples as resampling_tuples
from rewake.operators.resampling.answers import Windows
from rewake.operators.resampling.operator import ResampleSpec

_EPOCH = dt.datetime(1970, 1, 1)
VALUES = ["t", "k", "x", "y", "unused"]
REQUESTS = ["s", "k", "at"]


@dataclass(frozen=True)
class ResampleCase:
    """A resample of two streams; `spare` and `keys` are sizes that make no difference."""

    line: Line
    spec: ResampleSpec
    spare: int = 65_536
    keys: int = 65_536

    def patched(self) -> ExitStack:
        """While in this context, those sizes are as the case says."""
        stack = ExitStack()
        stack.enter_context(mock.patch.object(resampling_tuples, "SPARE_ROWS", self.spare))
        stack.enter_context(mock.patch.object(key_columns, "SPARE_KEYS", self.keys))
        return stack


def schemas(time: str) -> tuple[pa.Schema, pa.Schema]:
    """Of values and requests; `time` is the type of both time columns."""
    kind = pa.int64() if time == "int64" else pa.timestamp("ms")
    values = [kind, pa.string(), pa.int32(), pa.dictionary(pa.int8(), pa.string()), pa.int8()]
    return (
        pa.schema(list(zip(VALUES, values, strict=True))),
        pa.schema(list(zip(REQUESTS, [pa.string(), pa.string(), kind], strict=True))),
    )


def spans(windows: Windows) -> list[float | None]:
    """A function of whole windows: how many values, and the sum of them times their order."""
    found = []
    for first, last in zip(windows.first, windows.last, strict=True):
        values = windows.values[first:last].astype(float)
        found.append(float(values @ np.arange(1, values.size + 1)) if values.size else None)
    return found


def spans_without_seven(windows: Windows) -> list[float | None]:
    """The same, but it fails for windows with a seven in them."""
    for first, last in zip(windows.first, windows.last, strict=True):
        if 7 in windows.values[first:last]:
            raise ValueError("seven")
    return spans(windows)


_STEPS = [0, 1, 1, 2, -1, -3, -8, 6, 0]
_KEYS = ["a", "a", None, ""]
_METHODS = ["linear", "previous", "nearest", spans, spans_without_seven]


def _line(seed: int, size: int, time: str) -> Line:
    random = np.random.default_rng(seed)
    now, entries, latest = 0, [], []
    for _ in range(size):
        step, pick = int(random.choice(_STEPS)), int(random.integers(60))
        now += max(step, 0)
        latest.append(now)
        at, key, chance = _time(now + min(step, 0), time), _KEYS[pick % 4], random.random()
        x, y = [0, 5, None, -3, 7][pick % 5], ["", "b", None][pick % 3]
        if chance < 0.5:
            entries.append((0, (at, key, x, y, 1)))
        else:
            entries.append((1, (str(pick), key, at)) if chance < 0.95 else None)
    marks = some_marks(random, latest, [0, -2, 3, 6, -8])
    return Line(schemas(time), tuple(entries), tuple(sorted(marks.items())))


@st.composite
def resample_cases(draw: st.DrawFn) -> ResampleCase:
    """Any two streams in any mixture, any resample."""
    time = draw(st.sampled_from(["int64", "timestamp"]))
    how = draw(st.sampled_from(_METHODS))
    one = how == "linear" or callable(how)
    columns = [("x", "x")] if one else [("x", "x"), ("z", "y")]
    spec = ResampleSpec(
        columns=tuple(columns),
        time="t",
        window=draw(st.sampled_from([4, 1, 2, 9])),
        on=draw(st.sampled_from([(), ("k",)])),
        how=how,
        at_time="at",
        missing=draw(st.sampled_from(["null", "drop"])),
        route_late=draw(st.booleans()),
        on_error="divert" if how is spans_without_seven else "stop",
    )
    line = _line(draw(st.integers(0, 10**6)), draw(SIZES), time)
    spare, keys = draw(st.sampled_from([65_536, 2])), draw(st.sampled_from([65_536, -1000]))
    return ResampleCase(line, spec, spare, keys)


def _time(number: int, kind: str) -> Any:
    return number if kind == "int64" else _EPOCH + dt.timedelta(milliseconds=number)


def _number(time: Any) -> int:
    return time if isinstance(time, int) else int((time - _EPOCH) / dt.timedelta(milliseconds=1))


# --- the oracle ------------------------------------------------------------------------------


def _interpolated(how: Any, at: int, window: int, seen: list[tuple[int, Any]]) -> Any:
    """The answer of one column from (time, value) in order of time, ties by arrival."""
    reach = 0 if how == "previous" else window
    seen = [each for each in seen if at - window <= each[0] <= at + reach and each[1] is not None]
    if how is spans_without_seven and 7 in [value for _, value in seen]:
        raise ValueError
    if callable(how):
        total = sum(float(value) * place for place, (_, value) in enumerate(seen, 1))
        return total if seen else None
    latest = dict(seen)
    before = max([time for time in latest if time <= at], default=None)
    after = min([time for time in latest if time > at], default=None)
    if how == "linear":
        if before == at:
            return float(latest[before])
        if before is None or after is None:
            return None
        share = (at - before) / (after - before)
        return latest[before] + (latest[after] - latest[before]) * share
    if how == "nearest" and after is not None and (before is None or after - at < at - before):
        before = after
    return None if before is None else latest[before]


class Expected(NamedTuple):
    """What each output must get: answers in order, late values, late requests, failing requests."""

    results: list[tuple[Any, ...]]
    late_values: list[Any]
    late_requests: list[Any]
    dead: list[Any]


def oracle(case: ResampleCase) -> Expected:
    """The definition, tuple by tuple."""
    spec, line = case.spec, case.line
    window = int(spec.window)
    reach = 0 if spec.how == "previous" else window
    clock, values, pending = -math.inf, [], []
    out, late_values, late_requests, dead = found = Expected([], [], [], [])
    for position in range(len(line.entries) + 1):
        if position in line.watermarks:
            mark = line.watermarks[position]
            clock = max(clock, math.inf if mark == END_OF_TIME else mark)
            due = sorted(each for each in pending if each[0] < clock - reach)
            pending = [each for each in pending if each[0] >= clock - reach]
            for at, _, row in due:
                seen = sorted(
                    (each for each in values if not spec.on or each[2][1] == row[1]),
                    key=lambda each: each[:2],
                )
                columns = [
                    [(e[0], e[2][VALUES.index(column)]) for e in seen] for _, column in spec.columns
                ]
                try:
                    answers = [_interpolated(spec.how, at, window, each) for each in columns]
                except ValueError:
                    dead.append(row)
                    continue
                if spec.missing == "null" or None not in answers:
                    out.append((*row, *answers))
        entry = line.entries[position] if position < len(line.entries) else None
        if entry is None:
            continue
        port, row = entry
        at = _number(row[0] if port == 0 else row[2])
        if port == 0 and at < clock - reach - window:
            late_values.append(row)
        elif port == 0:
            values.append((at, position, row))
        elif at < clock - reach:
            late_requests.append(row)
        else:
            pending.append((at, position, row))
    return found
