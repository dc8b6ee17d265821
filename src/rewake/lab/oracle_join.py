"""What a join of two streams must yield, in the plainest Python that says it.

As `oracle`: it shares no code with the engine, keeps every tuple that ever came, and looks at one
at a time.  Rows have their inputs' columns; a result has those of the left, then those of the right
but the keys, with `_right` behind their names; its time is the later of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rewake.lab.oracle import Punctuation

Row = dict[str, Any]
Came = tuple[int, Row]  # by which input, 0 or 1

_BEFORE_ALL = -(2**63)


class _Held:
    def __init__(self, row: Row) -> None:
        self.row = row
        self.met = self.decided = False


class _Join:
    def __init__(
        self, on: Sequence[str], within: int, time: str, how: str, slack: int, right: Sequence[str]
    ) -> None:
        self.on, self.within, self.time, self.how, self.slack = on, within, time, how, slack
        self.right_columns = [each for each in right if each not in on]
        self.clock = _BEFORE_ALL
        self.reached = [_BEFORE_ALL, _BEFORE_ALL]
        self.held: tuple[list[_Held], list[_Held]] = ([], [])
        self.results: list[Row] = []

    def pass_time(self, watermark: int = _BEFORE_ALL) -> None:
        """Time is that of the input behind, or what a watermark says."""
        self.clock = max(self.clock, watermark, min(self.reached))
        self.reached = [max(each, self.clock) for each in self.reached]
        self.decide()

    def arrive(self, side: int, row: Row) -> None:
        time = row[self.time]
        self.reached[side] = max(self.reached[side], time - self.slack)
        self.pass_time()
        if self.clock >= (time // self.within + 1) * self.within:
            return  # late
        mine = _Held(row)
        for other in self.held[1 - side]:
            left, right = (mine, other) if side == 0 else (other, mine)
            if self.joins(left.row, right.row):
                self.results.append(self.joined(left.row, right.row))
                mine.met = other.met = True
        self.held[side].append(mine)

    def joins(self, left: Row, right: Row) -> bool:
        near = abs(left[self.time] - right[self.time]) < self.within
        return near and all(left[key] == right[key] for key in self.on)

    def joined(self, left: Row, right: Row | None) -> Row:
        theirs = {f"{each}_right": right and right[each] for each in self.right_columns}
        times = [row[self.time] for row in (left, right) if row is not None]
        return {**left, self.time: max(times), **theirs}

    def decide(self) -> None:
        """Left tuples that can meet nobody any more, if they are asked for; by pane, then order."""
        due = []
        for place, each in enumerate(self.held[0]):
            pane = each.row[self.time] // self.within
            if not each.decided and self.clock >= (pane + 2) * self.within:
                each.decided = True
                if not each.met and self.how == "left":
                    due.append((pane, place))
        self.results += [self.joined(self.held[0][place].row, None) for _, place in sorted(due)]


def join(
    came: Iterable[Came | Punctuation],
    *,
    on: Sequence[str],
    within: int,
    time: str,
    how: str,
    slack: int,
    right: Sequence[str],
) -> list[Row]:
    """The results of an inner or left join in order; `right` are the columns of the right input."""
    assert how in ("inner", "left"), "only these are said here"
    state = _Join(on, within, time, how, slack, right)
    for each in came:
        if isinstance(each, Punctuation):
            state.pass_time(each.time)
        else:
            state.arrive(*each)
    return state.results
