"""The registry of approaches; and that one from outside needs nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

from rewake.log.frame import TurnRecord, decode_frame, encode_frame
from rewake.log.results import result_batch, result_sections
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.fragment import FragmentProgram, OutputRoute
from rewake.operators.windows.specs import count_window
from rewake.recovery import approach as module
from rewake.recovery.approach import (
    NOTHING,
    Guarantee,
    Keeper,
    Turn,
    approach_named,
    approaches,
    guarantee_of,
    register,
    rows_in,
)

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


# --- an approach from outside ----------------------------------------------------------------


@dataclass(frozen=True)
class FromTheStart:
    """Logs results alone; after a crash all input is processed again."""

    name: ClassVar[str] = "from-the-start"
    keeper: ClassVar[Keeper] = Keeper.LOG
    foretells: ClassVar[bool] = False
    repeats_turns: ClassVar[bool] = True
    allows_cycles: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, **settings):
        return cls(**settings)

    def settings(self):
        return {}

    def late_tuples_in(self, frame) -> int:  # noqa: ARG002
        return 0

    def build(self, operator, emit, frames):
        newest = next(iter(frames), None)
        return ReplaysEverything(operator, emit, -1 if newest is None else newest.t_end)


class ReplaysEverything:
    """Drops what is emitted for input that the log has results of."""

    acknowledged = -1

    def __init__(self, operator, emit, through):
        self.operator, self._emit, self._through = operator, emit, through
        self.position = 0

    @property
    def recovering(self):
        return self.position <= self._through

    @property
    def frames_needed(self):
        return 1

    def turn(self, event, now_ms=0.0):  # noqa: ARG002
        assert event.start == self.position
        replayed = self.recovering
        outputs = self._emit(self.operator.process(event))
        self.position = event.end
        if replayed or not outputs:
            return NOTHING
        record = self.bare_record()._replace(
            tuples=rows_in(outputs), records=rows_in(outputs), sections=result_sections(outputs)
        )
        return Turn(record, outputs)

    def bare_record(self):
        return TurnRecord(self.position - 1, self.operator.clock, self.operator.open_parts, 0, 0)

    def progress(self):
        return {"open_windows": self.operator.open_parts, "replay_tuples": self.position}

    def check_invariants(self):
        pass


@pytest.fixture
def from_the_start(monkeypatch) -> Iterator[str]:
    """The approach is registered while the test runs."""
    monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))
    register(FromTheStart)
    return FromTheStart.name


# --- a small host ----------------------------------------------------------------------------

SPEC = AggregateSpec(["k"], count_window(3), [Sum("v", "sum")])
PROGRAM = FragmentProgram(
    stateful=SPEC, routes=tuple(OutputRoute(0, ("k",), part, 2) for part in range(2))
)


def stream():
    """Twenty stream events of five tuples."""
    for number in range(20):
        rows = range(5 * number, 5 * number + 5)
        columns = {"k": [row % 7 for row in rows], "v": list(rows)}
        yield StreamEvent(5 * number, pa.RecordBatch.from_pydict(columns, schema=SCHEMA))


def frame_of(record, sequence):
    return decode_frame(
        encode_frame(record, log_id=1, epoch=1, sequence=sequence, position=0, durable=0)
    )


def live(name, frames, turns=99):
    """One process, which dies after so many turns; its frames are added to the log."""
    driven = approach_named(name).build(PROGRAM.operator(SCHEMA), PROGRAM.emit, reversed(frames))
    for event in stream():
        if event.start >= driven.position and turns > 0:
            turn = driven.turn(event)
            turns -= 1
            if turn.record is not None:
                frames.append(frame_of(turn.record, len(frames)))


def results_of(frames):
    """Per output, all that the log has."""
    schema = PROGRAM.output_schema(SCHEMA)
    found = [[result_batch(frame, schema, output) for frame in frames] for output in range(2)]
    return [[row for each in batches if each for row in each.to_pylist()] for batches in found]


def test_an_approach_from_outside_is_chosen_and_recovers_like_any_other(from_the_start):
    """It is registered and defines itself; nothing else knows of it."""
    alone, crashed, usual = [], [], []
    live(from_the_start, alone)
    for turns in (4, 2, 9, 99):
        live(from_the_start, crashed, turns)
    live("cec", usual)
    assert results_of(crashed) == results_of(alone) == results_of(usual)
    assert sum(map(len, results_of(alone))) > 20


# --- the registry ----------------------------------------------------------------------------


def test_the_approaches_that_come_with_the_package_are_known_by_name():
    """Importing the registry is enough."""
    known = {name: (each.keeper, guarantee_of(each)) for name, each in approaches().items()}
    assert known == {
        "amnesia": (Keeper.NOBODY, Guarantee.GAP),
        "cec": (Keeper.LOG, Guarantee.PRECISE),
        "instant": (Keeper.LOG, Guarantee.PRECISE),
    }


def test_a_name_belongs_to_one_approach():
    """Registering the same one again changes nothing; another is refused."""
    register(approaches()["cec"])

    class Impostor(FromTheStart):
        name = "cec"

    with pytest.raises(UsageError, match="already an approach named 'cec'"):
        register(Impostor)


def test_unknown_names_and_settings_are_refused():
    """The error says what there is."""
    with pytest.raises(UsageError, match=r"no recovery approach 'magic'.*amnesia, cec, instant"):
        approach_named("magic")
    with pytest.raises(UsageError, match=r"'cec' has no such setting.*speed"):
        approach_named("cec", speed=9)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cec", {}),
        ("cec", {"records": 100, "period_ms": 50}),
        ("cec", {"shot_every": 10, "shot_slow_after": 5}),
        ("cec", {"patience": 0.5}),
        ("instant", {"every_tuples": 10, "full_every": 4}),
        ("instant", {"every_tuples": None, "every_turns": 3}),
        ("amnesia", {}),
    ],
)
def test_an_approach_is_its_name_and_settings(name, settings):
    """So that plans and logs can say it in JSON."""
    made = approach_named(name, **settings)
    assert made.settings() == settings
    assert approach_named(name, **made.settings()) == made
    assert hash(approach_named(name, **settings)) == hash(made)
