"""What a join of two streams must yield, in the plainest Python that says it.

As `oracle`: it shares no code with the engine, keeps every tuple that ever came, and looks at one
at a time.  Rows have their inputs' columns; a result has those of the left, then those of the right
but the keys, with `_right` behind their names; its time is the later of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rewake.oracle.aggregates import Punctuation, drive

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
        self.late: tuple[list[Row], list[Row]] = ([], [])

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
            self.late[side].append(row)
            return
        mine = _Held(row)
        for other in self.held[1 - side]:
            left, right = (mine, other) if side == 0 else (other, mine)
            if self.joins(left.row, right.row):
                if self.how == "semi" and not left.met:
                    self.results.append(left.row)
                elif self.how not in ("semi", "anti"):
                    self.results.append(self.joined(left.row, right.row))
                mine.met = other.met = True
        self.held[side].append(mine)

    def joins(self, left: Row, right: Row) -> bool:
        near = abs(left[self.time] - right[self.time]) < self.within
        return near and all(left[key] == right[key] for key in self.on)

    def joined(self, left: Row | None, right: Row | None) -> Row:
        """A result; None is no tuple, whose columns are nulls, but for the keys."""
        some = left or right
        assert some is not None, "nobody joins nobody"
        own = left or {each: some[each] if each in self.on else None for each in some}
        theirs = {f"{each}_right": right and right[each] for each in self.right_columns}
        times = [row[self.time] for row in (left, right) if row is not None]
        return {**own, self.time: max(times), **theirs}

    def alone(self, side: int) -> bool:
        """Whether tuples of an input are asked for that met nobody."""
        return self.how in (("left", "full", "anti"), ("right", "full"))[side]

    def decide(self) -> None:
        """Tuples that can meet nobody any more, if they are asked for: by pane, left ones first."""
        due = []
        for side, place, each in _numbered(self.held):
            pane = each.row[self.time] // self.within
            if not each.decided and self.clock >= (pane + 2) * self.within:
                each.decided = True
                if not each.met and self.alone(side):
                    due.append((pane, side, place))
        for _, side, place in sorted(due):
            row = self.held[side][place].row
            pair = (row, None) if side == 0 else (None, row)
            self.results.append(row if self.how == "anti" else self.joined(*pair))


def _numbered(held: tuple[list[_Held], list[_Held]]) -> list[tuple[int, int, _Held]]:
    return [(side, place, each) for side in (0, 1) for place, each in enumerate(held[side])]


def join(
    came: Iterable[Came | Punctuation],
    *,
    on: Sequence[str],
    within: int,
    time: str,
    how: str,
    slack: int,
    right: Sequence[str],
) -> dict[int, list[Row]]:
    """Results in order, then late tuples by input; `right` are the columns of the right input.

    Both inputs have the same columns, without nulls.
    """
    state = _Join(on, within, time, how, slack, right)
    drive(state, came)
    return {0: state.results, 2: state.late[0], 3: state.late[1]}
