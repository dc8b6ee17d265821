"""Timers by the clock of the machine: nodes that die at any moment, against a plain reading.

The clock decides, so no two runs need be alike.  What must hold: the output is that of one run
without a crash in which the clock showed what the log says it showed, and tuples came between as
the log says.  The oracle reads nothing else of the log, and shares no code with the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from aggregate_runs import ListedFrames
from hypothesis import given
from hypothesis import strategies as st

from rewake.graph.plan.plan import NodePlan
from rewake.graph.query import Query
from rewake.log.columns import unpack_columns
from rewake.log.frame import SectionKind
from rewake.log.results import result_batch
from rewake.model.stream_event import StreamEvent
from rewake.node.commands import Append, Connect, Finish
from rewake.node.messages import Packet
from rewake.node.node import Node
from rewake.recovery.approach import approach_named
from rewake.recovery.driven import LogSoFar

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OUTPUT = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.int64())])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK = 1

Row = tuple[int, int]


def _ms(time: datetime) -> int:
    return round((time - _EPOCH).total_seconds() * 1000)


# --- the user's functions, and the same as the oracle reads them ------------------------------


def on_tuples(key: int, tuples: pa.RecordBatch, state: dict[str, Any], now: datetime) -> Any:
    """Counts, sets a timer by the clock or takes it back, forgets every fifth."""
    state = {"n": state["n"] + tuples.num_rows}
    rows = [{"k": key, "n": state["n"], "at": _ms(now)}]
    timer = _ms(now) + 35 if state["n"] % 3 else None
    return rows, None if state["n"] % 5 == 0 else state, timer


def on_timer(key: int, time: datetime, state: dict[str, Any]) -> Any:
    """Counts, and sets itself twice again."""
    state = {"n": state["n"] + 1}
    rows = [{"k": key, "n": -state["n"], "at": _ms(time)}]
    return rows, None if state["n"] > 6 else state, _ms(time) + 20 if state["n"] % 3 else None


class _Key(NamedTuple):
    n: int
    timer: int | None
    opened: int


class Oracle:
    """What the functions come to, key by key in plain Python."""

    def __init__(self) -> None:
        self.keys: dict[int, _Key] = {}
        self.rows: list[tuple[int, int, int]] = []
        self.now = 0

    def tuples(self, rows: list[Row], position: int) -> None:
        """A stream event at a position of the node's own time."""
        for key in dict.fromkeys(key for key, _ in rows):
            first = next(i for i, row in enumerate(rows) if row[0] == key)
            was = self.keys.get(key, _Key(0, None, position + first))
            n = was.n + sum(1 for row in rows if row[0] == key)
            self.rows.append((key, n, self.now))
            self.keys[key] = was._replace(n=n, timer=self.now + 35 if n % 3 else None)
            if n % 5 == 0:
                del self.keys[key]
        self.fire(self.now)

    def fire(self, now: int, *, end: bool = False) -> None:
        """The clock shows this: what is due, earliest first, as often as something is."""
        self.now = now
        while due := sorted(
            (each.timer, each.opened, key)
            for key, each in self.keys.items()
            if each.timer is not None and (end or each.timer <= now)
        ):
            for time, _, key in due:
                n = self.keys[key].n + 1
                self.rows.append((key, -n, time))
                timer = time + 20 if n % 3 and not end else None
                self.keys[key] = self.keys[key]._replace(n=n, timer=timer)
                if n > 6:
                    del self.keys[key]


# --- a host that dies -------------------------------------------------------------------------


class Life(NamedTuple):
    """How long a process lives, what its clock shows at first, and how its loop goes."""

    steps: tuple[tuple[int, int], ...]  # (stream events that arrive, milliseconds that pass)
    ahead: int
    lost: bool


def _plan(approach: str, settings: dict[str, Any]) -> NodePlan:
    query = Query("timers")
    counted = query.entry("items", SCHEMA).process(
        on_tuples,
        by="k",
        state={"n": (pa.int64(), 0)},
        output=OUTPUT,
        timers="processing",
        each_key=True,
        on_timer=on_timer,
        approach=approach_named(approach, **settings),
        name="counted",
    )
    counted.to_stream("counts")
    return query.plan().node("counted")


def _events(batches: list[list[Row]]) -> list[StreamEvent]:
    events, position = [], 0
    for rows in batches:
        columns = [pa.array(each, pa.int64()) for each in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        events.append(StreamEvent(position, batch))
        position = events[-1].end
    return events


class Host:
    """One node after the other on one log."""

    def __init__(self, plan: NodePlan, events: list[StreamEvent]) -> None:
        self.plan = plan
        self.events = events
        self.log = ListedFrames()
        self.wall = 1_000

    def _start(self) -> tuple[Node, Iterator[StreamEvent]]:
        frames = self.log.frames
        end = sum(frame.tuples for frame in frames)
        node = Node(self.plan, 1, LogSoFar(frames[::-1], len(frames), end))
        (connect,) = node.start()
        assert isinstance(connect, Connect)
        rest = (each for each in self.events if each.end > connect.position)
        return node, rest

    def _work(self, node: Node, *, lost: bool = False) -> bool:
        before = node.turns
        for command in node.work(float(self.wall), self.wall):
            if isinstance(command, Append) and not lost:
                self.log.append(command.record)
                node.durable(len(self.log.frames))
        node.check_invariants()
        return node.turns > before

    def live(self, life: Life) -> None:
        """Until it is killed, perhaps with its last frame on the way to the disk."""
        node, rest = self._start()
        # Where it runs now, the clock may be behind that of the machine before.
        self.wall += life.ahead
        for number, (arrivals, passed) in enumerate(life.steps):
            self.wall += passed
            for event in islice(rest, arrivals):
                node.arrived(0, event)
            self._work(node, lost=life.lost and number + 1 == len(life.steps))

    def finish(self) -> None:
        """The last life: all input, and its end."""
        node, rest = self._start()
        for event in rest:
            node.arrived(0, event)
            while self._work(node):
                self.wall += 7
        node.arrived(0, Packet(self.events[-1].end, self.events[-1].end, final=True))
        while self._work(node):
            self.wall += 7
        assert node.finished or any(isinstance(each, Finish) for each in node.tick(0.0))


def _expected(host: Host) -> list[tuple[int, int, int]]:
    """By what the log says of the order, and nothing else."""
    oracle, position = Oracle(), 0
    for frame in host.log.frames:
        payload = frame.section(SectionKind.DETERMINANTS)
        assert payload is not None
        channels, firsts, spans, *_ = unpack_columns(payload)
        for channel, first, span in zip(
            channels.tolist(), firsts.tolist(), spans.tolist(), strict=True
        ):
            if channel == _CLOCK:
                oracle.fire(first)
            elif span:
                (event,) = [each for each in host.events if each.start == first]
                rows = [tuple(row.values()) for row in event.batch.to_pylist()]
                oracle.tuples(rows, position)
            position += span
    oracle.fire(oracle.now, end=True)
    return oracle.rows


_BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=5),
    min_size=1,
    max_size=12,
)
_STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0, 3, 10, 17, 40, 200])), min_size=1, max_size=14
)
_LIVES = st.lists(
    st.builds(Life, _STEPS.map(tuple), st.sampled_from([0, 5, -300, 900]), st.booleans()),
    max_size=4,
)
APPROACHES = [
    ("cec", {}),
    ("cec", {"records": 4, "tuples": 6, "interval_ms": 1}),
    ("instant", {}),
]


@pytest.mark.parametrize(("approach", "settings"), APPROACHES)
@given(batches=_BATCHES, lives=_LIVES)
def test_after_any_crashes_the_output_is_that_of_the_clock_that_was_logged(
    approach, settings, batches, lives
):
    """No timer fires twice, none is forgotten, and nobody sees two times at one position."""
    host = Host(_plan(approach, settings), _events(batches))
    for life in lives:
        host.live(life)
    host.finish()
    found = [
        tuple(row.values())
        for frame in host.log.frames
        if (batch := result_batch(frame, OUTPUT)) is not None
        for row in batch.to_pylist()
    ]
    assert found == _expected(host)
