"""Lookups as steps: what each tuple gets, how often is asked, and what a crash does to it."""

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewake.recovery  # noqa: F401 (registers the approaches)
from rewake.log.frame import Frame
from rewake.log.results import result_batch
from rewake.model.errors import SchemaMismatch, Unavailable, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.classes import OperatorClass
from rewake.operators.fragment import FragmentProgram
from rewake.operators.lookups import LookupStep, distinct_rows
from rewake.recovery.approach import approach_named

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
FOUND = pa.schema([("name", pa.string()), ("asked", pa.int64())])


@dataclass
class World:
    """What is outside: how many rows there are for an id, and how often it was asked."""

    counts: dict[int | None, int]
    questions: list[list[int | None]] = field(default_factory=list)
    # So many questions are not answered.
    down: int = 0


WORLDS: dict[str, World] = {}


@dataclass(frozen=True)
class Asking:
    """A lookup whose answers say when they were given: no two are the same."""

    world: str = "world"
    parameters: tuple[str, ...] = ("id",)
    schema: pa.Schema = FOUND

    def describe(self) -> dict[str, str]:
        return {"kind": "asking", "statement": f"ask {self.world}"}

    def open(self) -> "Asking":
        return self

    def rows(self, parameters: pa.RecordBatch) -> pa.RecordBatch:
        world = WORLDS[self.world]
        if world.down:
            world.down -= 1
            raise Unavailable("it is away")
        ids = parameters.column(0).to_pylist()
        world.questions.append(ids)
        rows = [
            (place, f"{each}.{number}", len(world.questions))
            for place, each in enumerate(ids)
            for number in range(world.counts.get(each, 0))
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 3
        types = [pa.int64(), *self.schema.types]
        arrays = [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, ["", *self.schema.names])

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def world() -> World:
    WORLDS["world"] = World({1: 1, 2: 2, 3: 1})
    return WORLDS["world"]


def tuples(ids: Sequence[int | None], first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + len(ids))
    return pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.int64()), pa.array(numbers, pa.int64())], schema=SCHEMA
    )


def pairs(batch: pa.RecordBatch) -> list[tuple[int, str | None]]:
    """The number of each tuple, and the name that was found for it."""
    return list(zip(batch["n"].to_pylist(), batch["name"].to_pylist(), strict=True))


# --- what each tuple gets ------------------------------------------------------------------------


def test_a_tuple_for_which_nothing_is_found_has_nulls(world: World) -> None:
    """Tuples keep their order and are all there."""
    found = LookupStep(Asking()).apply(tuples([3, 9, 1, None, 3]))
    assert pairs(found) == [(0, "3.0"), (1, None), (2, "1.0"), (3, None), (4, "3.0")]
    assert found.schema == LookupStep(Asking()).output_schema(SCHEMA)
    assert found.schema.names == ["id", "n", "name", "asked"]


def test_an_inner_lookup_drops_such_tuples(world: World) -> None:
    """The others keep their order."""
    found = LookupStep(Asking(), how="inner").apply(tuples([3, 9, 1, None, 3]))
    assert pairs(found) == [(0, "3.0"), (2, "1.0"), (4, "3.0")]
    assert LookupStep(Asking(), how="inner").apply(tuples([9])).num_rows == 0


def test_several_rows_are_several_tuples(world: World) -> None:
    """In the order of the answer, where the tuple was."""
    step = LookupStep(Asking(), many=True)
    found = step.apply(tuples([2, 9, 1, 2]))
    assert pairs(found) == [(0, "2.0"), (0, "2.1"), (1, None), (2, "1.0"), (3, "2.0"), (3, "2.1")]


def test_several_rows_that_nobody_expects_are_refused(world: World) -> None:
    """The error names the step and the parameters, and says what to do."""
    with pytest.raises(UsageError, match=r"step 'who': 2 rows were found for id = 2; say many"):
        LookupStep(Asking(), name="who").apply(tuples([1, 2]))


def test_equal_parameters_are_asked_for_once(world: World) -> None:
    """A batch is one question, of distinct parameters, in the order in which they come."""
    LookupStep(Asking()).apply(tuples([3, 1, 3, None, 1, 3, None]))
    assert world.questions == [[3, 1, None]]


def test_a_batch_without_tuples_asks_nothing(world: World) -> None:
    """And has the columns all the same."""
    found = LookupStep(Asking()).apply(tuples([]))
    assert (found.num_rows, found.schema.names) == (0, ["id", "n", "name", "asked"])
    assert world.questions == []


@given(
    ids=st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=40),
    counts=st.dictionaries(st.integers(0, 5), st.integers(0, 3)),
    how=st.sampled_from(["left", "inner"]),
)
def test_a_lookup_is_a_join_with_what_is_outside(ids, counts, how) -> None:
    """Said again in plain Python."""
    WORLDS["world"] = World(counts)
    due = []
    for number, each in enumerate(ids):
        names = [f"{each}.{place}" for place in range(counts.get(each, 0))]
        due += [(number, name) for name in names or ([None] if how == "left" else [])]
    assert pairs(LookupStep(Asking(), how, many=True).apply(tuples(ids))) == due


@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-3, 3)), st.one_of(st.none(), st.sampled_from("abc"))
        ),
        max_size=30,
    )
)
def test_distinct_rows_are_those_of_a_dictionary(rows) -> None:
    """With nulls, also as dictionary columns."""
    first, second = zip(*rows, strict=True) if rows else ((), ())
    texts = pa.array(second, pa.string())
    for column in (texts, texts.dictionary_encode()):
        batch = pa.RecordBatch.from_arrays([pa.array(first, pa.int64()), column], ["a", "b"])
        firsts, which = distinct_rows(batch)
        known = list(dict.fromkeys(rows))
        assert firsts.tolist() == [rows.index(each) for each in known]
        assert which.tolist() == [known.index(each) for each in rows]


# --- what does not fit ---------------------------------------------------------------------------


def test_a_column_that_is_found_must_be_new(world: World) -> None:
    """The error says how to rename it."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with pytest.raises(SchemaMismatch, match=r"step 'who': .*'name'.*SELECT name AS found_name"):
        LookupStep(Asking(), name="who").output_schema(schema)


def test_a_parameter_must_be_a_column(world: World) -> None:
    """The error has a near name."""
    with pytest.raises(SchemaMismatch, match=r"step 'who': no column 'id'; did you mean 'ID'\?"):
        LookupStep(Asking(), name="who").output_schema(pa.schema([("ID", pa.int64())]))


def test_how_is_one_of_two() -> None:
    """Everything else is refused when the step is made."""
    with pytest.raises(UsageError, match="left, inner, not 'outer'"):
        LookupStep(Asking(), how="outer")


def test_a_lookup_is_a_value(world: World) -> None:
    """Copies are equal and open for themselves."""
    step = LookupStep(Asking(), name="who")
    step.apply(tuples([1]))
    for other in (pickle.loads(pickle.dumps(step)), copy.deepcopy(step)):
        assert other == step
        assert pairs(other.apply(tuples([1]))) == [(0, "1.0")]
    step.close()
    assert pairs(step.apply(tuples([3]))) == [(0, "3.0")]
    assert step.identity()["lookup"] == Asking().describe()
    assert (step.text, step.words) == ("ask world", "left lookup ask world")
    assert len(LookupStep(Asking("very " * 50 + "long")).words) == 72


# --- its class, and crashes ----------------------------------------------------------------------


def test_a_lookup_is_arbitrary(world: World) -> None:
    """The same tuples, asked for again, may be others; so what it gives is logged."""
    step = LookupStep(Asking())
    assert step.operator_class is OperatorClass.ARBITRARY
    assert FragmentProgram((step,)).operator_class() is OperatorClass.ARBITRARY
    assert step.apply(tuples([1])) != step.apply(tuples([1]))
    assert FragmentProgram((step,)).must_log == "what a database answers may change"


@settings(max_examples=60)
@given(
    ids=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    lives=st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(1, 7)), max_size=4),
    outages=st.lists(st.integers(0, 3), max_size=6),
    approach=st.sampled_from([approach_named("cec"), approach_named("cec", recover_within="1s")]),
    how=st.sampled_from(["left", "inner"]),
)
def test_through_crashes_and_outages_each_tuple_is_answered_once(
    ids, lives, outages, approach, how
) -> None:
    """What has been logged stays; what has not is asked for, whatever is answered by then."""
    WORLDS["world"] = world = World({1: 1, 2: 2, 3: 3})
    program = FragmentProgram((LookupStep(Asking(), how, many=True),))
    frames: list[Frame] = []
    outages = list(outages)
    for turns, lost, cut in [*lives, (len(ids) + 1, False, 3)]:
        recovery = build(approach, program, frames)
        assert not recovery.recovering, "there is nothing to replay without state"
        for number, start in enumerate(range(recovery.position, len(ids), cut)):
            if number == turns:
                break
            world.down = outages.pop() if outages else 0
            turn = patient_turn(
                recovery, StreamEvent(start, tuples(ids[start : start + cut], start))
            )
            if turn.record is not None and not (lost and number + 1 == turns):
                frames.append(frame_of(turn.record, len(frames)))
            elif lost and number + 1 == turns:
                break
    schema = program.output_schema(SCHEMA)
    batches = [each for frame in frames if (each := result_batch(frame, schema)) is not None]
    due = []
    for number, each in enumerate(ids):
        names = [f"{each}.{place}" for place in range(world.counts.get(each, 0))]
        due += [(number, name) for name in names or ([None] if how == "left" else [])]
    assert [pair for batch in batches for pair in pairs(batch)] == due


def build(approach, program, frames):
    return approach.build(program.operator(SCHEMA), program.emit, reversed(frames))


def patient_turn(recovery, event):
    """As a node does: a turn that could not be taken is taken again."""
    while True:
        position = recovery.position
        try:
            return recovery.turn(event)
        except Unavailable:
            assert recovery.position == position, "a turn that was not taken changed something"


def frame_of(record, sequence: int) -> Frame:
    return Frame(1, sequence, 0, *record[:5], 0, 0, tuple(record.sections), "", 0)


def test_pairs_are_right_for_large_batches(world: World) -> None:
    """The arithmetic of places, once more against numpy."""
    ids = np.random.default_rng(1).integers(0, 5, 10_000)
    found = LookupStep(Asking(), many=True).apply(tuples(ids.tolist()))
    counts = np.array([max(world.counts.get(each, 0), 1) for each in ids.tolist()])
    assert found["n"].to_pylist() == np.repeat(np.arange(ids.size), counts).tolist()
