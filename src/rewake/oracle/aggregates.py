"""What an aggregate over windows must yield, in the plainest Python that says it.

The oracle shares no code with the engine and no idea either: it keeps every tuple of every open
window (no panes, no running sums), looks at one tuple at a time, and has never heard of stream
events, logs or recovery.  It is slow on purpose.

    >>> rows = [{"k": 1, "v": 10}, {"k": 2, "v": 5}, {"k": 1, "v": 20}]
    >>> aggregate(rows, by=["k"], window=("count", 2, 2), functions=[("avg", "v", "mean")])
    [{'k': 1, 'mean': 15.0}]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Protocol

Row = dict[str, Any]
Function = tuple[str, str, str]  # kind, column, name of the result
UserFunctions = dict[str, Callable[[list[Any]], Any]]


class Punctuation:
    """In place of a row: no event time below `time` is expected after it."""

    def __init__(self, time: int) -> None:
        self.time = time


class Plain(Protocol):
    """An operator that looks at one thing at a time."""

    def arrive(self, port: int, row: Row, /) -> None:
        """A tuple of an input."""

    def pass_time(self, time: int, /) -> None:
        """A punctuation."""


def drive(operator: Plain, came: Iterable[tuple[int, Row] | Punctuation]) -> None:
    """Give an operator what came, in order."""
    for each in came:
        if isinstance(each, Punctuation):
            operator.pass_time(each.time)
        else:
            operator.arrive(*each)


def _exact(kind: str, values: list[Decimal]) -> Decimal:
    """The sum, or the average with four more digits behind the point than the values have."""
    with localcontext() as context:
        context.prec, context.rounding = 200, ROUND_HALF_UP
        total = sum(values, Decimal(0))
        digits = min(int(value.as_tuple().exponent) for value in values)
        return (
            total if kind == "sum" else (total / len(values)).quantize(Decimal(10) ** (digits - 4))
        )


def _result(kind: str, column: str, rows: Sequence[Row], user: UserFunctions) -> Any:
    if kind == "count" and not column:
        return len(rows)
    values = [row[column] for row in rows if row[column] is not None]
    if kind == "count":
        return len(values)
    if not values:
        return None
    if kind in user:
        return user[kind](values)
    if kind in ("sum", "avg") and isinstance(values[0], Decimal):
        return _exact(kind, values)
    if kind == "sum":
        return math.fsum(values) if isinstance(values[0], float) else sum(values)
    if kind == "avg":
        return math.fsum(values) / len(values)
    if kind == "stddev":
        return statistics.stdev(map(float, values)) if len(values) > 1 else None
    if kind in ("min", "max"):
        return min(values) if kind == "min" else max(values)
    return values[0] if kind == "first" else values[-1]


def results_of(
    functions: Sequence[Function], rows: Sequence[Row], user: UserFunctions | None = None
) -> Row:
    """What functions make of the rows of a window, in the order in which they came."""
    return {name: _result(kind, column, rows, user or {}) for kind, column, name in functions}


class _Window:
    def __init__(self, key: tuple[Any, ...], opened: int) -> None:
        self.key = key
        self.opened = opened
        self.rows: list[Row] = []


class _Emitter:
    def __init__(
        self, by: Sequence[str], functions: Sequence[Function], user: UserFunctions
    ) -> None:
        self.by = by
        self.functions = functions
        self.user = user
        self.results: list[Row] = []

    def emit(self, key: tuple[Any, ...], rows: Sequence[Row], extra: Row) -> None:
        row = dict(zip(self.by, key, strict=True)) | extra
        self.results.append(row | results_of(self.functions, rows, self.user))


def _key(row: Row, by: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in by)


def aggregate(stream: Iterable[Row | Punctuation], **asked: Any) -> list[Row]:
    """All results, in order; see `aggregate_with_late` for the late tuples, and what is asked."""
    return aggregate_with_late(stream, **asked)[0]


def aggregate_with_late(
    stream: Iterable[Row | Punctuation],
    *,
    by: Sequence[str],
    window: tuple[str, int, int],
    functions: Sequence[Function],
    time: str | None = None,
    slack: int = 0,
    timeout: int | None = None,
    user: UserFunctions | None = None,
) -> tuple[list[Row], list[Row]]:
    """All results and all late tuples, each in order."""
    emitter = _Emitter(by, functions, user or {})
    kind, size, advance = window
    if kind == "count":
        _count_windows(stream, emitter, size, advance, time, timeout)
        return emitter.results, []
    assert time is not None
    late = _time_windows(stream, emitter, size, advance, time, slack)
    return emitter.results, late


def running(
    batches: Iterable[Sequence[Row]],
    *,
    by: Sequence[str],
    functions: Sequence[Function],
    user: UserFunctions | None = None,
) -> list[list[Row]]:
    """For each batch, the value of every key in it over all of the key's tuples so far.

    A batch's keys come in the order in which they first occur in it.

    >>> one, two = [{"k": 1, "v": 10}, {"k": 2, "v": 5}], [{"k": 1, "v": 20}]
    >>> running([one, two], by=["k"], functions=[("sum", "v", "total")])
    [[{'k': 1, 'total': 10}, {'k': 2, 'total': 5}], [{'k': 1, 'total': 30}]]
    """
    history: dict[tuple[Any, ...], list[Row]] = {}
    results = []
    for batch in batches:
        emitter = _Emitter(by, functions, user or {})
        for row in batch:
            history.setdefault(_key(row, by), []).append(row)
        for key in dict.fromkeys(_key(row, by) for row in batch):
            emitter.emit(key, history[key], {})
        results.append(emitter.results)
    return results


def _count_windows(
    stream: Iterable[Row | Punctuation],
    emitter: _Emitter,
    size: int,
    advance: int,
    time: str | None,
    timeout: int | None,
) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    windows: list[_Window] = []  # all open ones, in the order in which they opened
    clock: int | None = None

    def expire() -> None:
        while timeout is not None and clock is not None:
            old = [each for each in windows if clock - each.opened >= timeout]
            if not old:
                return
            for each in [each for each in windows if each.key == old[0].key]:
                emitter.emit(each.key, each.rows, {})
                windows.remove(each)
            seen[old[0].key] = 0

    for item in stream:
        now = item.time if isinstance(item, Punctuation) else (item[time] if time else None)
        if now is not None:
            clock = now if clock is None else max(clock, now)
            expire()
        if isinstance(item, Punctuation):
            continue
        key = _key(item, emitter.by)
        count = seen.get(key, 0)
        if count % advance == 0:
            windows.append(_Window(key, clock if clock is not None else 0))
        for each in [each for each in windows if each.key == key]:
            each.rows.append(item)
            if len(each.rows) == size:
                emitter.emit(key, each.rows, {})
                windows.remove(each)
        # Windows that do not overlap start over after each round of `advance` tuples.
        count += 1
        seen[key] = 0 if advance >= size and count == advance else count


def _time_windows(
    stream: Iterable[Row | Punctuation],
    emitter: _Emitter,
    size: int,
    advance: int,
    time: str,
    slack: int,
) -> list[Row]:
    windows: dict[tuple[int, tuple[Any, ...]], _Window] = {}
    late: list[Row] = []
    clock: int | None = None
    for number, item in enumerate(stream):
        now = item.time if isinstance(item, Punctuation) else item[time] - slack
        clock = now if clock is None else max(clock, now)
        done = [start for start, _ in windows if start + size <= clock]
        for start in sorted(set(done)):
            closing = [key for (begin, key) in windows if begin == start]
            for key in sorted(closing, key=lambda key: windows[start, key].opened):
                ended = windows.pop((start, key))
                emitter.emit(key, ended.rows, {"window_start": start, "window_end": start + size})
        if isinstance(item, Punctuation):
            continue
        starts = range((item[time] - size) // advance * advance + advance, item[time] + 1, advance)
        open_starts = [start for start in starts if start + size > clock]
        if starts and not open_starts:
            late.append(item)
        for start in open_starts:
            key = _key(item, emitter.by)
            windows.setdefault((start, key), _Window(key, number)).rows.append(item)
    return late
