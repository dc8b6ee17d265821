"""Upstream backup: nothing is kept of a node but a bookmark, and its upstreams keep its input.

Hwang 3.3, with the level-1 acks of his upstream backup.  After a crash an empty operator reads
input again from a start at which it becomes, by the bookmark's position, what the operator was
there; what it gives until then is dropped, and from then on output goes on where the bookmark says.

Every so often, between two turns, the moment becomes a candidate: how far input and output are, and
from where an empty operator would be the same: the turn in which the oldest open part opened.  The
newest candidate whose output is needed by no consumer is kept by the coordinator, one at a time;
when it is, input before its start is needed no more.

What always holds, whoever fails and how often:

1. output before the bookmark is needed by nobody, so whoever asks can be served;
2. what was acknowledged upstream is before the start of a bookmark that is durable.

It is right where an empty operator becomes the same, given the clock (`CONVERGENT_CAPABLE`), and
input comes again as it was, watermarks included: the planner sees to both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from rewake.log.frame import Frame, TurnRecord
from rewake.model.errors import ReplayMismatch, UsageError
from rewake.model.stream_event import NO_TIME, StreamEvent
from rewake.model.units import duration_in_unit
from rewake.operators.stateful import NO_IDS, StatefulOperator, StoredParts
from rewake.recovery.approach import (
    NOTHING,
    Approach,
    Emit,
    Keeper,
    Kept,
    Recovery,
    Release,
    Turn,
    register,
)
from rewake.recovery.bookmark import Bookmark, Start
from rewake.recovery.driven import Keep, RecoveryCommand, Wake

__all__ = ["MOST_CANDIDATES", "MOST_STARTS", "BackedUp", "Starts", "UpstreamBackup"]

_MS: Final = 1_000_000
_NO_PARTS: Final = StoredParts(NO_IDS, NO_IDS, [], [], [])
# What is remembered grows neither with how long a part is open nor with how far consumers are
# behind.
MOST_STARTS: Final = 4096
MOST_CANDIDATES: Final = 256


@register
@dataclass(frozen=True)
class UpstreamBackup(Approach):
    """Upstreams keep the input; `every` so often the node leaves a bookmark of where it is."""

    name: ClassVar[str] = "upstream-backup"
    keeper: ClassVar[Keeper] = Keeper.COORDINATOR
    retains: ClassVar[Kept] = Kept.IN_QUEUE
    release: ClassVar[Release] = Release.AT_ONCE
    repeats_turns: ClassVar[bool] = True

    every: str = "1s"

    def __post_init__(self) -> None:
        if duration_in_unit(self.every, _MS) <= 0:
            raise UsageError(f"every={self.every!r}: a bookmark takes some time, such as '1s'")

    def build(self, operator: StatefulOperator, emit: Emit, frames: Iterable[Frame]) -> Recovery:  # noqa: ARG002
        """A node that has left no bookmark begins with its input."""
        return BackedUp(self, operator, emit)

    def go_back(self, operator: StatefulOperator, emit: Emit, bookmark: Bookmark) -> Recovery:
        """Read input again from where the bookmark says."""
        return BackedUp(self, operator, emit, bookmark)

    @property
    def caution(self) -> str:
        """What is open for long is read again."""
        return (
            "caution: upstreams keep its input from the oldest open window on, and a crash "
            "processes all of that again; a window that never closes keeps everything"
        )


class BackedUp(Recovery):
    """One operator whose input is kept upstream, driven turn by turn."""

    def __init__(
        self,
        settings: UpstreamBackup,
        operator: StatefulOperator,
        emit: Emit,
        bookmark: Bookmark | None = None,
    ) -> None:
        self.operator = operator
        self._emit = emit
        self._every_ms = float(duration_in_unit(settings.every, _MS))
        # How far time has come in the input, and where output ends.
        self.position, self._watermark, self._output = 0, NO_TIME, 0
        self._starts = Starts()
        # The bookmark that is durable, that which is on its way, and those that wait until nobody
        # needs the output before them, oldest first.
        self._kept = self._goes_to = bookmark
        self._on_its_way: Bookmark | None = None
        self._waiting: deque[Bookmark] = deque()
        self._released = 0
        if bookmark is not None:
            self._go_back(bookmark)

    def _go_back(self, bookmark: Bookmark) -> None:
        self.position, self._watermark, clock = bookmark.begins
        self._output = bookmark.output
        self.operator.restore(_NO_PARTS, _NO_PARTS, clock=clock, late_tuples=bookmark.late_tuples)
        self.operator.end_replay()

    # --- turns -------------------------------------------------------------------------------

    def turn(self, event: StreamEvent, now_ms: float = 0.0) -> Turn:  # noqa: ARG002
        """Process the next stream event; what it gives is dropped while input is read again."""
        assert event.start == self.position, (
            f"the stream event at {event.start} is not the next one: {self.position}"
        )
        told = self._watermark if event.watermark is None else event.watermark
        replayed = self._check_replay(event.end, told)
        self._starts.note(self._now)
        outcome = self.operator.process(event)
        self.position, self._watermark = event.end, told
        if not replayed:
            return Turn(None, self._emit(outcome))
        if not self.recovering and self._goes_to is not None:
            # What was late for windows that were open before the start counts once.
            self.operator.late_tuples = self._goes_to.late_tuples
        return NOTHING

    def _check_replay(self, end: int, watermark: int) -> bool:
        """Whether a turn up to there is one whose output has been sent."""
        bookmark = self._goes_to
        if bookmark is None or not self.recovering:
            return False
        if (end, watermark) > (bookmark.position, bookmark.watermark):
            raise ReplayMismatch(
                f"a turn ended at input position {bookmark.position}, and now a stream event "
                f"from {self.position} goes on to {end}: input is cut differently, or tells time "
                "differently, than when it was first read; a source must give the same stream "
                "events whenever it is read"
            )
        return True

    @property
    def _now(self) -> Start:
        return Start(self.position, self._watermark, self.operator.clock)

    @property
    def recovering(self) -> bool:
        """Whether the next input has been processed before the bookmark."""
        goal = self._goes_to
        here = (self.position, self._watermark)
        return goal is not None and here < (goal.position, goal.watermark)

    @property
    def replay_through(self) -> int:
        """The last position before the bookmark."""
        return -1 if self._goes_to is None else self._goes_to.position - 1

    @property
    def acknowledged(self) -> int:
        """Input before the start of the durable bookmark is not needed."""
        return -1 if self._kept is None else self._kept.start - 1

    # --- bookmarks ---------------------------------------------------------------------------

    def began(self) -> Sequence[RecoveryCommand]:
        """The first bookmark is due after a while."""
        return [Wake(self._every_ms)]

    def gave(self, position: int) -> Sequence[RecoveryCommand]:
        """All output of the turns so far is before this position."""
        self._output = position
        return ()

    def woke(self, now_ms: float) -> Sequence[RecoveryCommand]:  # noqa: ARG002
        """This moment becomes a candidate, if anything has happened since the last."""
        if not self.recovering:
            self._note_candidate()
        return [Wake(self._every_ms), *self._choose()]

    def _note_candidate(self) -> None:
        now = self._now
        newest = self._waiting[-1] if self._waiting else self._on_its_way or self._kept
        if newest is not None and newest[:2] == now[:2]:
            return
        opened = self.operator.opened_at
        opened = opened[opened >= 0]
        start = self._starts.before(int(np.min(opened))) if opened.size else now
        late = self.operator.late_tuples
        self._waiting.append(Bookmark.at(now, self._output, late, start))
        if len(self._waiting) > MOST_CANDIDATES:
            # Who is far behind will come to one of the others.
            self._waiting = deque(list(self._waiting)[::2])

    def released(self, position: int) -> Sequence[RecoveryCommand]:
        """No consumer needs output before this position."""
        self._released = position
        return self._choose()

    def _choose(self) -> Sequence[RecoveryCommand]:
        """Have the newest candidate kept that nobody is behind, one at a time."""
        if self._on_its_way is not None:
            return ()
        while self._waiting and self._waiting[0].output <= self._released:
            self._on_its_way = self._waiting.popleft()
        return () if self._on_its_way is None else [Keep(self._on_its_way)]

    def bookmark_kept(self, bookmark: Bookmark) -> Sequence[RecoveryCommand]:
        """It is durable: what is before its start is needed no more."""
        assert bookmark == self._on_its_way, "a bookmark that was not asked for"
        self._kept, self._on_its_way = bookmark, None
        return self._choose()

    # --- for hosts and people ----------------------------------------------------------------

    @property
    def frames_needed(self) -> int:
        """There is no log."""
        return 0

    def bare_record(self) -> TurnRecord:
        """Nothing is recorded."""
        raise AssertionError("upstream backup records no turns")

    def progress(self) -> dict[str, float]:
        """Figures for people: open windows, tuples to read again, bookmarks that wait."""
        return {
            "open_windows": self.operator.open_parts,
            "replay_tuples": self.position - 1 - self.acknowledged,
            "waiting_bookmarks": len(self._waiting),
        }

    def check_invariants(self) -> None:
        """What always holds between turns."""
        known = [self._kept, self._on_its_way, *self._waiting]
        line = [each for each in known if each is not None]
        for earlier, later in pairwise(line):
            assert earlier.start <= later.start, "input is needed again that was given up"
            assert earlier.output <= later.output, "output went back"
        assert all(each.output > self._released for each in self._waiting) or self._on_its_way


class Starts:
    """What was before each turn since the oldest part that is open.

    Bounded by leaving out every second; one that is left out is replaced by an earlier one, from
    which an operator becomes the same, too.
    """

    def __init__(self) -> None:
        self._starts: deque[Start] = deque()

    def __len__(self) -> int:
        return len(self._starts)

    def note(self, start: Start) -> None:
        """A turn begins."""
        if len(self._starts) >= MOST_STARTS:
            self._starts = deque(list(self._starts)[::2])
        self._starts.append(start)

    def before(self, position: int) -> Start:
        """The latest that is known at or before this position; earlier ones are forgotten."""
        while len(self._starts) > 1 and self._starts[1].position <= position:
            self._starts.popleft()
        return self._starts[0]
