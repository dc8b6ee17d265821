"""What sessions, sorts and resamples must yield, in the plainest Python that says it.

As `oracle`: they share no code with the engine, keep every tuple, and look at one at a time.  Each
is given what came, in order: by which input, and the row; or a punctuation.  Each gives the rows of
its outputs by port: 0 are results, 1 late tuples, from 2 on what else there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rewake.oracle.aggregates import Function, Punctuation, drive, results_of

Row = dict[str, Any]
Came = tuple[int, Row]
ByPort = dict[int, list[Row]]

_BEFORE_ALL = -(2**63)
# At the end of a stream all is over, and nothing later is known.
_END = 2**62


# --- sessions ------------------------------------------------------------------------------------


class _Sessions:
    """A session is a list of rows; lists that touch become one."""

    def __init__(
        self, by: Sequence[str], gap: int, time: str, slack: int, functions: Sequence[Function]
    ) -> None:
        self.by, self.gap, self.time, self.slack, self.functions = by, gap, time, slack, functions
        self.clock = _BEFORE_ALL
        # Of each key its sessions: rows with the number of their arrival.
        self.open: dict[tuple[Any, ...], list[list[tuple[int, Row]]]] = {}
        self.arrived = 0
        self.results: list[Row] = []
        self.late: list[Row] = []

    def arrive(self, _port: int, row: Row) -> None:
        key, at = tuple(row[name] for name in self.by), row[self.time]
        mine = self.open.setdefault(key, [])
        near = [each for each in mine if any(abs(at - r[self.time]) < self.gap for _, r in each)]
        self.arrived += 1
        if not near and at + self.gap <= self.clock:
            self.late.append(row)
        else:
            rest = [each for each in mine if each not in near]
            joined = [item for each in near for item in each]
            self.open[key] = [*rest, sorted([*joined, (self.arrived, row)], key=_number)]
        self.pass_time(at - self.slack)

    def pass_time(self, time: int) -> None:
        self.clock = max(self.clock, time)
        over = []
        for key, mine in self.open.items():
            closed = [each for each in mine if self._end(each) <= self.clock]
            self.open[key] = [each for each in mine if each not in closed]
            over += [(self._end(each), each[0][0], key, each) for each in closed]
        for end, _, key, each in sorted(over, key=lambda one: one[:2]):
            rows = [row for _, row in each]
            start = min(row[self.time] for row in rows)
            named = dict(zip(self.by, key, strict=True))
            window = {"window_start": start, "window_end": end}
            self.results.append({**named, **window, **results_of(self.functions, rows)})

    def _end(self, session: list[tuple[int, Row]]) -> int:
        return int(max(row[self.time] for _, row in session)) + self.gap


def _number(item: tuple[int, Row]) -> int:
    return item[0]


def sessions(
    came: Iterable[Came | Punctuation],
    *,
    by: Sequence[str],
    gap: int,
    time: str,
    slack: int,
    functions: Sequence[Function],
) -> ByPort:
    """Sessions in the order in which they close, and tuples too late for any."""
    state = _Sessions(by, gap, time, slack, functions)
    drive(state, came)
    return {0: state.results, 1: state.late}


# --- sorts ---------------------------------------------------------------------------------------


class _Sort:
    """Of each owner a list of those that wait, with the number of their arrival."""

    def __init__(self, by: str, buffer: int, per: Sequence[str], *, flush: bool) -> None:
        self.by, self.buffer, self.per, self.flush = by, buffer, per, flush
        self.clock = _BEFORE_ALL
        self.waiting: dict[tuple[Any, ...], list[tuple[Any, int, Row]]] = {}
        self.arrived = 0
        self.results: list[Row] = []

    def passed(self, row: Row) -> bool:
        return self.clock >= _END or (self.flush and row[self.by] < self.clock)

    def arrive(self, _port: int, row: Row) -> None:
        self.arrived += 1
        if self.passed(row):
            self.results.append(row)
            return
        mine = self.waiting.setdefault(tuple(row[name] for name in self.per), [])
        mine.append((row[self.by], self.arrived, row))
        if len(mine) == self.buffer:
            smallest = min(mine, key=lambda each: each[:2])
            mine.remove(smallest)
            self.results.append(smallest[2])

    def pass_time(self, time: int) -> None:
        self.clock = max(self.clock, time)
        leaving = [each for mine in self.waiting.values() for each in mine if self.passed(each[2])]
        for owner, mine in self.waiting.items():
            self.waiting[owner] = [each for each in mine if not self.passed(each[2])]
        self.results += [row for *_, row in sorted(leaving, key=lambda each: each[:2])]


def sort(
    came: Iterable[Came | Punctuation], *, by: str, buffer: int, per: Sequence[str], flush: bool
) -> ByPort:
    """The same tuples, nearly in order."""
    state = _Sort(by, buffer, per, flush=flush)
    drive(state, came)
    return {0: state.results}


# --- resamples -----------------------------------------------------------------------------------


class _Resample:
    """All values, and the requests that wait, with the number of their arrival."""

    def __init__(
        self, column: tuple[str, str], time: str, window: int, on: Sequence[str], how: str
    ) -> None:
        self.column, self.time, self.window, self.on, self.how = column, time, window, on, how
        self.reach = 0 if how == "previous" else window
        self.clock = _BEFORE_ALL
        self.values: list[tuple[int, int, Row]] = []
        self.waiting: list[tuple[int, int, Row]] = []
        self.arrived = 0
        self.ports: ByPort = {0: [], 1: [], 2: []}

    def arrive(self, port: int, row: Row) -> None:
        self.arrived += 1
        at = row[self.time]
        if port == 0 and at < self.clock - self.reach - self.window:
            self.ports[1].append(row)
        elif port == 0:
            self.values.append((at, self.arrived, row))
        elif at < self.clock - self.reach:
            self.ports[2].append(row)
        else:
            self.waiting.append((at, self.arrived, row))

    def pass_time(self, time: int) -> None:
        self.clock = max(self.clock, time)
        due = [each for each in self.waiting if each[0] < self.clock - self.reach]
        self.waiting = [each for each in self.waiting if each not in due]
        for at, _, row in sorted(due, key=lambda each: each[:2]):
            self.ports[0].append({**row, self.column[0]: self._answer(at, row)})

    def _answer(self, at: int, request: Row) -> Any:
        near: dict[int, Any] = {}
        for time, _, row in sorted(self.values, key=lambda each: each[:2]):
            same = all(row[key] == request[key] for key in self.on)
            if same and at - self.window <= time <= at + self.reach:
                near[time] = row[self.column[1]]  # the last to come with a time counts
        before = max((time for time in near if time <= at), default=None)
        after = min((time for time in near if time > at), default=None)
        if self.how == "linear":
            if before == at:
                return float(near[at])
            if before is None or after is None:
                return None
            share = (at - before) / (after - before)
            return near[before] + (near[after] - near[before]) * share
        if self.how == "nearest" and after is not None:
            before = after if before is None or after - at < at - before else before
        return None if before is None else near[before]


def resample(
    came: Iterable[Came | Punctuation],
    *,
    column: tuple[str, str],
    time: str,
    window: int,
    on: Sequence[str],
    how: str,
) -> ByPort:
    """Answers in order of time, late values, late requests; `column` is the result's and theirs."""
    state = _Resample(column, time, window, on, how)
    drive(state, came)
    return state.ports
