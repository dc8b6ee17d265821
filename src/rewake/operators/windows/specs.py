"""Window specifications: how many tuples, or how much event time, and how far apart.

A window of `size` starts every `advance`.  `advance == size` tumbles, `advance < size` slides,
`advance > size` leaves gaps whose tuples belong to no window.  Windows are per key: a count
window counts its key's tuples.  A running window has neither: it never closes.  A session
lasts as long as its tuples follow each other closely enough.

State is kept in *panes*: the stretches between neighbouring window borders, so that a tuple
updates one pane however many windows overlap it.  A pane is the *part* that leaves footprints
(CEC II.B: "independent components corresponding to the different open windows").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any, ClassVar, NamedTuple

from rewake.model.errors import InvalidWindow
from rewake.model.units import check_duration, duration_in_unit, duration_ns


def _check_positive(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidWindow(f"a window's {what} must be a positive whole number, not {value!r}")
    check_reach(f"a window's {what}", value)


# In place of a slack: tuples say nothing of the time, watermarks alone do.  Durations may follow,
# each behind a plus sign: the clock is behind watermarks by as much ("watermarks+5s").
BY_WATERMARKS = "watermarks"
_AND = "+"
# Tuples then are that far behind, which is further than any two times are apart.
_NEVER_BY_TUPLES = 2**61


class Slack(NamedTuple):
    """How far an operator's clock is behind the latest tuple, and how far behind watermarks."""

    tuples: int
    watermarks: int = 0


def goes_by_watermarks(slack: str | int) -> bool:
    """Whether watermarks alone move the clock."""
    return isinstance(slack, str) and slack.split(_AND)[0] == BY_WATERMARKS


def behind_watermarks(slack: str | int | None, *more: str | int) -> str:
    """The slack of a step that goes by watermarks and stays behind them by as much as is given."""
    known = () if slack is None else (slack,)
    texts = [str(each) for each in (*known, *more) if each not in (0, BY_WATERMARKS)]
    return _AND.join([BY_WATERMARKS, *(each.removeprefix(BY_WATERMARKS + _AND) for each in texts)])


def slack_in_unit(slack: str | int, unit_ns: int) -> Slack:
    """How far the clock is behind, in the unit of a time column."""
    if not isinstance(slack, str | int) or isinstance(slack, bool):
        raise InvalidWindow(f'slack is a duration such as "10s", not {slack!r}')
    if not goes_by_watermarks(slack):
        return Slack(_duration(slack, unit_ns))
    behind = sum(_duration(_read(each), unit_ns) for each in str(slack).split(_AND)[1:])
    check_reach("slack", behind)
    return Slack(_NEVER_BY_TUPLES, behind)


def _read(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _duration(slack: str | int, unit_ns: int) -> int:
    value = duration_in_unit(slack, unit_ns)
    if value < 0:
        raise InvalidWindow(f"slack must not be negative, but is {slack!r}")
    check_reach("slack", value)
    return value


def slack_words(slack: str | int) -> str:
    """For people; nothing where there is none."""
    if not goes_by_watermarks(slack):
        return f", slack {slack}" if slack else ""
    behind = str(slack).split(_AND)[1:]
    return ", by watermarks" + (f" less {' and '.join(behind)}" if behind else "")


def check_reach(what: str, value: int) -> None:
    """Refuse durations with which 64-bit times could overflow."""
    if value >= 2**62:
        raise InvalidWindow(f"{what} of {value} is beyond what 64-bit times can hold")


class WindowKind(ABC):
    """Which tuples of a key belong together."""

    # What it is called in logs.
    kind: ClassVar[str]

    def describe(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]  # a dataclass

    @abstractmethod
    def words(self, time: str | None) -> str:
        """For people; `time` is the event-time column."""


def _size_words(window: CountWindow | TimeWindow, unit: str) -> str:
    words = f"windows of {window.size}{unit}"
    words += "" if window.size == window.advance else f", one every {window.advance}"
    return words + (", tuples between them belong to none" if window.leaves_gaps else "")


@dataclass(frozen=True)
class CountWindow(WindowKind):
    """Windows of `size` tuples of a key, one starting every `advance` tuples."""

    size: int
    advance: int

    kind: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        _check_positive("size", self.size)
        _check_positive("advance", self.advance)
        if max(self.size, self.advance) >= 2**31:
            raise InvalidWindow(f"a count window of {self.size} by {self.advance} is too long")

    def words(self, time: str | None) -> str:  # noqa: ARG002
        """For people."""
        return _size_words(self, " tuples")

    @property
    def tumbling(self) -> bool:
        """Whether each tuple belongs to exactly one window."""
        return self.size == self.advance

    @property
    def leaves_gaps(self) -> bool:
        """Whether some tuples belong to no window."""
        return self.advance > self.size

    @property
    def pane(self) -> int:
        """Tuples in a pane; a window with the gap behind it, where there is one, is one pane."""
        return self.advance if self.advance >= self.size else gcd(self.size, self.advance)


@dataclass(frozen=True)
class TimeWindow(WindowKind):
    """Windows over event time `[k * advance, k * advance + size)`, in the time column's unit."""

    size: str | int
    advance: str | int

    kind: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        check_duration("a window's size", self.size)
        check_duration("a window's advance", self.advance)

    def words(self, time: str | None) -> str:
        """For people."""
        return _size_words(self, f" of {time}")

    @property
    def leaves_gaps(self) -> bool:
        """Whether some times belong to no window, as far as that can be told without the unit."""
        if isinstance(self.size, str) and isinstance(self.advance, str):
            return duration_ns(self.advance) > duration_ns(self.size)
        if isinstance(self.size, int) and isinstance(self.advance, int):
            return self.advance > self.size
        return False

    def in_unit(self, unit_ns: int) -> tuple[int, int]:
        """Size and advance as integers in the time column's unit."""
        size = duration_in_unit(self.size, unit_ns)
        advance = duration_in_unit(self.advance, unit_ns)
        _check_positive("size", size)
        _check_positive("advance", advance)
        return size, advance


@dataclass(frozen=True)
class SessionWindow(WindowKind):
    """Windows of tuples each closer than `gap` to another, in the time column's unit."""

    gap: str | int

    kind: ClassVar[str] = "session"

    def __post_init__(self) -> None:
        check_duration("the gap of sessions", self.gap)

    def words(self, time: str | None) -> str:
        """For people."""
        return f"sessions with gaps of {self.gap} of {time}"

    def in_unit(self, unit_ns: int) -> int:
        """The gap as an integer in the time column's unit."""
        gap = duration_in_unit(self.gap, unit_ns)
        if isinstance(gap, bool) or gap <= 0:
            raise InvalidWindow(f"the gap of sessions must be longer than nothing, not {gap!r}")
        check_reach("the gap of sessions", gap)
        return gap


@dataclass(frozen=True)
class RunningWindow(WindowKind):
    """One window per key that never closes; every turn emits the keys it touched.

    What is emitted when follows how the input was cut into stream events, so this is for hosts
    whose stream events are the same every time (micro-batches).
    """

    kind: ClassVar[str] = "running"

    def words(self, time: str | None) -> str:  # noqa: ARG002
        """For people."""
        return "running windows"


Window = CountWindow | TimeWindow | SessionWindow | RunningWindow


def running_window() -> RunningWindow:
    """A window per key that never closes: its current value after every stream event."""
    return RunningWindow()


def count_window(size: int, every: int | None = None) -> CountWindow:
    """Windows of `size` tuples, tumbling or one starting `every` so many tuples."""
    return CountWindow(size, size if every is None else every)


def time_window(size: str | int, every: str | int | None = None) -> TimeWindow:
    """Windows of `size` event time, tumbling or one starting `every` so often."""
    return TimeWindow(size, size if every is None else every)


def session_window(gap: str | int) -> SessionWindow:
    """Windows of tuples of a key with less than `gap` between them: `session_window("30s")`."""
    return SessionWindow(gap)
