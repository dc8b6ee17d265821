"""The registry of approaches; and that one from outside needs nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from rewake.graph.query import Query
from rewake.log.frame import TurnRecord, decode_frame, encode_frame
from rewake.log.results import result_batch, result_sections
from rewake.model.errors import UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Sum
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.classes import OperatorClass
from rewake.operators.fragment import FragmentProgram, OutputRoute
from rewake.operators.windows.specs import count_window
from rewake.recovery.approach import (
    NOTHING,
    Approach,
    Guarantee,
    Keeper,
    Kept,
    Recovery,
    Release,
    Survives,
    Turn,
    approach_named,
    approaches,
    register,
    rows_in,
    unregister,
)

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


# --- an approach from outside ----------------------------------------------------------------


@dataclass(frozen=True)
class FromTheStart(Approach):
    """Logs results alone; after a crash all input is processed again."""

    name: ClassVar[str] = "from-the-start"
    keeper: ClassVar[Keeper] = Keeper.LOG
    retains: ClassVar[Kept] = Kept.IN_LOG
    repeats_turns: ClassVar[bool] = True

    def build(self, operator, emit, frames):
        newest = next(iter(frames), None)
        return ReplaysEverything(operator, emit, -1 if newest is None else newest.t_end)


class ReplaysEverything(Recovery):
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


@pytest.fixture
def from_the_start() -> Iterator[str]:
    """The approach is registered while the test runs."""
    register(FromTheStart)
    yield FromTheStart.name
    unregister(FromTheStart)


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
    known = {name: (each.keeper, each.retains) for name, each in approaches().items()}
    assert (
        known.items()
        >= {
            "amnesia": (Keeper.NOBODY, Kept.NOWHERE),
            "cec": (Keeper.LOG, Kept.IN_LOG),
            "instant": (Keeper.LOG, Kept.IN_LOG),
        }.items()
    )


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


# --- what follows from the answers -----------------------------------------------------------


class Mirrored(FromTheStart):
    """Has a standby; only its answers matter here."""

    name = "held-elsewhere"
    keeper = Keeper.STANDBY
    retains = Kept.IN_QUEUE
    places = 2


class AtOnce(Mirrored):
    """The same, without waiting for the standby (passive standby without precise recovery)."""

    release = Release.AT_ONCE


@pytest.mark.parametrize("operator_class", OperatorClass)
def test_what_is_kept_before_output_leaves_makes_it_precise(operator_class):
    """Whatever the operator: the order of inputs is kept with it.  What nobody keeps is lost."""
    kept = (approach_named("cec"), approach_named("instant"), Mirrored())
    assert {each.guarantee(operator_class) for each in kept} == {Guarantee.PRECISE}
    assert approach_named("amnesia").guarantee(operator_class) is Guarantee.GAP


def test_output_that_does_not_wait_is_made_again_under_the_same_positions():
    """Hwang Table 3.4: precise, because consumers drop what they have; but not where chance is."""
    given = {each: AtOnce().guarantee(each) for each in OperatorClass}
    assert given == {
        OperatorClass.REPEATABLE: Guarantee.PRECISE,
        OperatorClass.CONVERGENT_CAPABLE: Guarantee.PRECISE,
        OperatorClass.DETERMINISTIC: Guarantee.PRECISE,
        OperatorClass.ARBITRARY: Guarantee.DIVERGENT,
    }


def test_a_guarantee_is_no_minimum_along_the_way():
    """Tuples that come again shift what counts them for ever, however it is recovered."""
    precise = approach_named("cec").guarantee
    repeats, windows = Guarantee.REPEATING, OperatorClass.CONVERGENT_CAPABLE
    assert precise(windows, repeats) is Guarantee.DIVERGENT
    assert precise(OperatorClass.REPEATABLE, repeats) is Guarantee.REPEATING
    assert precise(windows, Guarantee.GAP) is Guarantee.GAP
    assert AtOnce().guarantee(windows, Guarantee.DIVERGENT) is Guarantee.DIVERGENT


def test_what_survives_follows_from_who_keeps():
    """A log outlasts all processes; memory outlasts one of several."""
    survives = [approach_named(name).survives for name in ("amnesia", "cec", "instant")]
    assert survives == [Survives.NOTHING, Survives.ALL, Survives.ALL]
    assert Mirrored().survives is Survives.ONE_PLACE


def test_answers_that_no_node_can_carry_out_are_refused(from_the_start):
    """The error says what would do."""
    for changed, wrong in (
        ({"places": 2}, "one place"),
        ({"keeper": Keeper.STANDBY}, "in the output queue"),
        ({"release": Release.AT_ONCE}, "when its record is kept"),
        ({"retains": Kept.NOWHERE}, "in the log"),
    ):
        odd = type("Odd", (FromTheStart,), {"name": "odd", **changed})
        with pytest.raises(UsageError, match=f"'odd' cannot be carried out.*{wrong}"):
            register(odd)
    register(Mirrored)


# --- what is no approach ---------------------------------------------------------------------


@pytest.mark.parametrize("where", ["query", "step"])
def test_the_name_of_an_approach_is_told_to_be_for_the_command_line(where):
    """With the values to write in its place."""
    entry = Query("other").entry("e", SCHEMA)
    of = {"query": partial(Query, "q"), "step": partial(entry.filter, "v > 1")}
    name: Any = "instant"
    words = "choose one of .*names are for the command line, a query takes the value itself"
    with pytest.raises(UsageError, match=words):
        of[where](approach=name)
