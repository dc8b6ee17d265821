"""What a host of self-contained logs may rely on: ways, repeats, bounds, and what is refused."""

import datetime as dt
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from rewake.log.columns import pack_columns
from rewake.log.frame import Section, SectionKind, decode_frame, encode_frame
from rewake.model.errors import DamagedFrame, DamagedLog, NullKey, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Count, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, running_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import OpenOnly
from rewake.recovery.promises.rates import Costs, RecoveryRates
from rewake.recovery.self_contained.engine import Bounds, SelfContained, Within, repeat
from rewake.recovery.self_contained.frames import MARK_OUTPUT
from rewake.recovery.self_contained.order import in_key_order
from rewake.recovery.self_contained.ways import fewer_bytes

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("note", pa.string())])
WINDOWS = {"count": count_window(3), "sliding": count_window(4, 2), "running": running_window()}


def sums(window, **more):
    """Builds operators that sum `v`."""
    spec = AggregateSpec(["k"], window, [Sum("v")], **more)
    return lambda: Aggregate(spec, SCHEMA)


def rows(keys):
    # Nothing that packing could find a rule in.
    values = np.random.default_rng(len(keys)).integers(0, 1000, len(keys))
    columns = [pa.array(keys, pa.int64()), pa.array(values), pa.array(["long words"] * len(keys))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class Shard:
    """A process with its log, which keeps no more frames than are needed."""

    def __init__(self, build, **more):
        self.build, self.more = build, more
        self.frames = []
        self.way = None
        self.crash()

    def _choose(self, sizes):
        return fewer_bytes(sizes) if self.way is None else self.way == "checks"

    def turn(self, keys, way=None, watermark=None):
        self.way = way
        event = StreamEvent(self.state.position, rows(keys), watermark)
        turn = self.state.turn(event, b"batch %d" % len(self.frames))
        self.frames.append(frame_of(turn.record, len(self.frames)))
        return turn

    @property
    def newest_first(self):
        return self.frames[: -self.state.frames_needed - 1 : -1] if self.frames else []

    def crash(self):
        frames = self.newest_first
        self.state = SelfContained.recover(self.build, frames, choose=self._choose, **self.more)

    def repeated(self):
        return [(output, batch.to_pylist()) for output, batch in self.again()]

    def again(self):
        return repeat(self.build, self.newest_first)


def by(way):
    """Every batch goes this way."""
    return lambda _: way == "checks"


def frame_of(record, sequence):
    encoded = encode_frame(record, log_id=1, epoch=1, sequence=sequence, position=0, durable=0)
    return decode_frame(encoded)


def kinds(frame):
    return {section.kind for section in frame.sections}


def input_bytes(frame):
    return sum(len(each.payload) for each in frame.sections if each.kind == SectionKind.INPUT)


def emitted(turn):
    return [(output, batch.to_pylist()) for output, batch in turn.outputs]


# --- records ---------------------------------------------------------------------------------


def test_every_batch_leaves_a_record_with_its_identity():
    """Also one without rows: the host asks the log which batch was the last."""
    shard = Shard(sums(count_window(3)))
    assert shard.state.identity is None
    for keys in ([1, 2], [], [1, 1]):
        shard.turn(keys)
    found = [bytes(frame.section(SectionKind.BATCH)) for frame in shard.frames]
    assert found == [b"batch 0", b"batch 1", b"batch 2"]
    shard.crash()
    assert shard.state.identity == b"batch 2"
    assert shard.state.position == 4


def test_rows_are_logged_when_a_batch_touches_many_windows():
    """Then its state would take more bytes than its rows; results are computed again."""
    shard = Shard(sums(running_window()))
    shard.turn(list(range(1000)))
    assert shard.state.progress()["way"] == "input"
    assert kinds(shard.frames[0]) >= {SectionKind.INPUT, SectionKind.OPENS}
    assert not kinds(shard.frames[0]) & {SectionKind.CHECKS, SectionKind.RESULTS}
    assert shard.state.progress()["replay_tuples"] == 1000


def test_state_is_logged_when_a_batch_touches_few_windows():
    """Then nothing is replayed, and windows that opened need no OPEN beside their CHECK."""
    shard = Shard(sums(count_window(300)))
    shard.turn([1, 2] * 1000)
    assert shard.state.progress()["way"] == "checks"
    assert kinds(shard.frames[0]) >= {SectionKind.CHECKS, SectionKind.RESULTS}
    assert not kinds(shard.frames[0]) & {SectionKind.INPUT, SectionKind.OPENS}
    assert shard.state.progress()["replay_tuples"] == 0
    assert shard.state.frames_needed == 1


def test_running_windows_need_no_results_beside_their_checks():
    """They follow from the CHECKs."""
    shard = Shard(sums(running_window()))
    turn = shard.turn([1, 2] * 1000)
    assert shard.state.progress()["way"] == "checks"
    assert SectionKind.RESULTS not in kinds(shard.frames[0])
    assert shard.repeated() == emitted(turn)


def test_only_columns_that_the_operator_reads_are_logged():
    """The others come back as nulls, which makes no difference."""
    shard = Shard(sums(running_window()))
    shard.turn(list(range(1000)))
    assert len(shard.frames[0].section(SectionKind.INPUT)) < 2 * 2 * 1000 + 1000
    shard.crash()
    assert shard.state.operator.open_parts == 1000


def test_figures_say_what_a_recovery_would_go_through():
    """As records, rows and bytes."""
    shard = Shard(sums(count_window(3)))
    shard.turn([1, 2, 3], "input")
    shard.turn([1], "checks")
    shard.turn([2], "input")
    found = shard.state.progress()
    stored = sum(input_bytes(frame) for frame in shard.frames)
    assert found == {
        "open_windows": 3,
        "extent_records": 3,
        "extent_bytes": sum(len(each.payload) for f in shard.frames for each in f.sections),
        "replay_tuples": 3,
        "replay_bytes": stored,
        "way": "input",
    }


# --- recovery and repeats --------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("ways", [("input",), ("checks",), ("input", "checks"), (None,)], ids=str)
def test_each_batch_can_be_repeated_and_gone_on_from(window, ways):
    """Whichever way it and those before it went."""
    crashing, steady = Shard(sums(window)), Shard(sums(window))
    for number in range(12):
        keys = [number % 3, 1, number % 5, 7]
        wanted = emitted(steady.turn(keys))
        assert emitted(crashing.turn(keys, ways[number % len(ways)])) == wanted
        assert crashing.repeated() == wanted
        crashing.crash()
        crashing.state.check_invariants()
        assert crashing.repeated() == wanted


@pytest.mark.parametrize("promised", [False, True])
def test_a_promised_time_bounds_what_a_recovery_goes_through(promised):
    """A window that is never touched again holds nothing back: it leaves a CHECK in time."""
    costs = Costs(load_us=10.0, replay_us=10.0, work_us=10.0, fixed_ms=20.0)
    rates = RecoveryRates(costs)
    shard = Shard(sums(running_window()))
    shard.turn([0], way="input")
    worst = 0.0
    for _ in range(100):
        shard.state.promise(Within(100.0, rates) if promised else None)
        shard.turn(list(range(1, 101)), way="input")
        found = shard.state.progress()
        worst = max(worst, rates.at_worst_ms(found["extent_records"], found["replay_tuples"]))
        shard.crash()
    assert (worst <= 100.0) is promised
    assert shard.turn([0]).on(0).num_rows == 1


def test_a_time_that_cannot_be_met_is_not_chased():
    """Nothing is below the newest batch, and a record for every open window."""
    shard = Shard(sums(running_window()))
    shard.state.promise(Within(1.0, RecoveryRates(Costs(fixed_ms=20.0))))
    for _ in range(20):
        shard.turn(list(range(100)), way="input")
        assert shard.state.progress()["replay_tuples"] <= 200


def test_late_tuples_are_repeated_too():
    """With all of their columns."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("note", pa.string())])
    spec = AggregateSpec(["k"], time_window(10), [Count()], time="t", route_late=True)

    def build():
        return Aggregate(spec, schema)

    for way in ("input", "checks"):
        state, frames = SelfContained(build(), choose=by(way)), []
        for number, times in enumerate([[5, 25], [7, 26]]):
            columns = {"k": [1, 1], "t": times, "note": ["a", "b"]}
            batch = pa.RecordBatch.from_pydict(columns, schema=schema)
            turn = state.turn(StreamEvent(2 * number, batch), b"id")
            frames.append(frame_of(turn.record, number))
        late = repeat(build, reversed(frames))
        assert [(output, batch.to_pylist()) for output, batch in late] == [
            (1, [{"k": 1, "t": 7, "note": "a"}])
        ]


def test_a_watermark_is_repeated_with_its_batch():
    """It closed windows, and their results belong to the batch."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    spec = AggregateSpec(["k"], time_window(10), [Count()], time="t")
    state = SelfContained(Aggregate(spec, schema), choose=by("input"))
    batch = pa.RecordBatch.from_pydict({"k": [1], "t": [5]}, schema=schema)
    turn = state.turn(StreamEvent(0, batch, 10), b"id")
    assert turn.outputs[0][1].num_rows == 1
    again = repeat(lambda: Aggregate(spec, schema), [frame_of(turn.record, 0)])
    assert again[0][1].equals(turn.outputs[0][1])


def test_a_batch_that_is_refused_changes_nothing():
    """A caller's mistake; the right batch can follow."""
    shard = Shard(sums(count_window(3), null_keys="refuse"))
    shard.turn([1, 2])
    with pytest.raises(NullKey):
        shard.turn([1, None])
    shard.turn([1, 1])
    shard.state.check_invariants()
    shard.crash()
    assert shard.state.position == 4


# --- rows ------------------------------------------------------------------------------------

ODD_COLUMNS = {
    "int64": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
    "narrow int64": pa.array([2**63 - 1, None, 2**63 - 200], pa.int64()),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "uint32": pa.array([2**32 - 1, None, 2**32 - 70_000], pa.uint32()),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "bool": pa.array([True, None, False]),
    "float": pa.array([float("inf"), None, -0.0]),
    "date": pa.array([dt.date(1969, 1, 1), None, dt.date(2024, 2, 29)]),
    "timestamp": pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(2024, 1, 2)]),
    "zoned": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
    "string": pa.array(["", None, "\u00e9"]),
    "nothing": pa.array([None, None, None], pa.int64()),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "list": pa.array([[1], None, []], pa.list_(pa.int64())),
}


def test_rows_of_any_type_come_back_as_they_were():
    """Integers and times are stored narrow where they can be; nulls stay nulls, slices slices."""
    late = {"route_late": True, "time": "t"}  # then all columns are read
    padded = {
        name: pa.concat_arrays([column.slice(1, 1), column]) for name, column in ODD_COLUMNS.items()
    }
    whole = pa.RecordBatch.from_pydict({"t": pa.array([0, 100, 100, 5]), **padded})
    batch = whole.slice(1)
    spec = AggregateSpec(["int64"], time_window(10), [Count()], **late)

    def build():
        return Aggregate(spec, whole.schema)

    state = SelfContained(build(), choose=by("input"))
    turn = state.turn(StreamEvent(0, batch), b"id")
    again = repeat(build, [frame_of(turn.record, 0)])
    assert again[0][1].to_pylist() == turn.outputs[0][1].to_pylist() == batch.slice(2).to_pylist()


# --- bounds ----------------------------------------------------------------------------------


def test_replay_and_extent_stay_bounded():
    """However long some windows are not touched; CHECKs are spread over the turns."""
    bounds = Bounds(least=1000, most_frames=50, fewest_checks=4)
    shard = Shard(sums(running_window()), policy=bounds)
    shard.turn(list(range(100)), "input")
    worst = {"replay_tuples": 0, "extent_records": 0}
    for number in range(400):
        turn = shard.turn([100 + number % 7] * 40, "input" if number % 3 else "checks")
        found = shard.state.progress()
        worst = {name: max(most, found[name]) for name, most in worst.items()}
        assert turn.checks <= 10 + 1
        assert shard.state.frames_needed <= 50 + 25 + 1
        shard.state.check_invariants()
    assert 900 < worst["replay_tuples"] <= 1000 + 12 * 40
    assert worst["extent_records"] <= 1200


def test_frames_without_rows_do_not_pile_up():
    """An idle shard still gets a record per batch, and its old windows CHECKs in time."""
    shard = Shard(sums(running_window()), policy=Bounds(most_frames=20, fewest_checks=10))
    shard.turn(list(range(100)), "input")
    for _ in range(200):
        shard.turn([])
        assert shard.state.frames_needed <= 20 + 10 + 1
    shard.crash()
    assert shard.state.operator.open_parts == 100


def test_far_beyond_a_bound_everything_needed_is_checkpointed_at_once():
    """As after a recovery with tighter bounds than before."""
    shard = Shard(sums(running_window()), policy=Bounds(least=10**9))
    for number in range(20):
        shard.turn(list(range(100 * number, 100 * number + 100)), "input")
    shard.more = {"policy": Bounds(least=1, most_frames=2, fewest_checks=1)}
    shard.crash()
    shard.turn([1], "input")
    assert shard.state.frames_needed <= 22
    shard.turn([1], "input")
    assert shard.state.frames_needed <= 4


def test_a_policy_of_ones_own_takes_the_place_of_bounds():
    """`OpenOnly` never leaves a CHECK, so rows pile up."""
    shard = Shard(sums(running_window()), policy=OpenOnly())
    for _ in range(50):
        shard.turn([1, 2], "input")
    assert shard.state.frames_needed == 50


# --- order and formats -----------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("way", ["input", "checks"])
def test_results_come_in_the_order_of_keys(window, way):
    """Each key has what it would have had; one key's results stay in their order."""
    keys = [5, -3, 5, 2**40, -3, 7, 5, -3, 5, 5, 2**40, -3, 5, 7]
    turn = Shard(sums(window)).turn(keys, way)
    plain = sums(window)().process(StreamEvent(0, rows(keys)))
    wanted = sorted(plain.results.to_pylist(), key=lambda row: row["k"])
    assert emitted(turn) == [(0, wanted)]


def test_an_order_that_may_matter_is_left_alone():
    """With a clock, one key's tuples decide what becomes of another's; null keys are no numbers."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    spec = AggregateSpec(["k"], time_window(10), [Count()], time="t")
    batch = pa.RecordBatch.from_pydict({"k": [2, 1], "t": [5, 5]}, schema=schema)
    event = StreamEvent(0, batch)
    assert in_key_order(Aggregate(spec, schema), event) is event
    for keys in ([2, None, 1], [1, 2, 2], []):
        event = StreamEvent(0, rows(keys))
        assert in_key_order(sums(running_window())(), event) is event


@pytest.mark.parametrize("reach", [10, 2**11, 2**30, 2**62])
def test_tuples_of_a_key_stay_in_their_order(reach):
    """However far keys are apart; watermark and covered positions stay, too."""
    random = np.random.default_rng(3)
    keys = random.choice(random.integers(-reach, reach, 20), 500)
    event = StreamEvent(7, rows(keys.tolist()), 3, 5)
    found = in_key_order(sums(running_window())(), event)
    places = np.argsort(keys, kind="stable")
    assert found.batch.equals(event.batch.take(pa.array(places)))
    assert (found.position, found.watermark, found.start) == (7, 3, 5)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_keys_are_put_in_order_to_the_ends_of_their_type(width):
    """Neither that many keys are equal nor that two are as far apart as can be misleads it."""
    ends = np.iinfo(f"int{width}")
    random = np.random.default_rng(4)
    spec = AggregateSpec(["k"], running_window(), [Count()])
    for choice in ([ends.min, ends.max, 0, -1], [ends.max, ends.max - 1], [ends.min + 1, ends.min]):
        keys = random.choice(np.array(choice, f"int{width}"), 100)
        batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(range(100))], names=["k", "v"])
        found = in_key_order(Aggregate(spec, batch.schema), StreamEvent(0, batch))
        places = np.argsort(keys, kind="stable")
        assert found.batch.equals(batch.take(pa.array(places)))


def test_state_and_rows_take_few_bytes():
    """About as many as there is in them: of a key and a number of ten bits, under two bytes."""
    random = np.random.default_rng(3)
    keys = random.integers(0, 10_000, 20_000).tolist()
    shard = Shard(sums(count_window(1000)))
    sizes = {}
    for way in ("input", "checks"):
        shard.turn(keys, way)
        sizes[way] = shard.frames[-1].length
    touched = len(set(keys))
    assert sizes["input"] < 2 * len(keys) + 4 * touched
    assert sizes["checks"] < 5 * touched


def test_a_log_of_another_version_is_refused():
    """It says which versions are meant."""
    shard = written()
    frame = shard.frames[-1]
    for payload in (pack_columns([np.zeros(9, np.int64)]), b"\x03 and what comes with it"):
        mark = Section(SectionKind.METADATA, payload, MARK_OUTPUT)
        sections = [s for s in frame.sections if (s.kind, s.output) != (mark.kind, MARK_OUTPUT)]
        other = frame._replace(sections=(*sections, mark))
        with pytest.raises(DamagedFrame, match=rf"version {payload[0]} .* reads version 2"):
            SelfContained.recover(shard.build, [other])


# --- what is refused -------------------------------------------------------------------------


def test_an_empty_log_has_nothing_to_repeat():
    """Nothing is changed."""
    shard = Shard(sums(running_window()))
    with pytest.raises(UsageError, match="empty"):
        shard.again()
    assert shard.state.position == 0


def written(ways=("input",), window=None):
    shard = Shard(sums(window or count_window(5)), policy=OpenOnly())
    for number in range(6):
        shard.turn([number % 3, 1, number, 7], ways[number % len(ways)])
    return shard


def test_a_missing_frame_is_damage():
    """Rows of it would be missing in the state."""
    shard = written()
    frames = shard.newest_first
    with pytest.raises(DamagedLog, match="missing"):
        SelfContained.recover(shard.build, frames[:2] + frames[3:])


def test_a_log_that_was_trimmed_too_far_is_damage():
    """For recovery and for a repeat."""
    shard = written()
    with pytest.raises(DamagedLog, match="trimmed too far"):
        SelfContained.recover(shard.build, shard.newest_first[:2])
    with pytest.raises(DamagedLog, match="trimmed too far"):
        repeat(shard.build, shard.newest_first[:2])
    with pytest.raises(DamagedLog, match="trimmed too far"):
        repeat(shard.build, shard.newest_first[:1])


def test_a_log_of_another_approach_or_operator_is_refused():
    """Before anything is believed."""
    cec = ContinuousEventualCheckpointing(sums(count_window(5))(), OpenOnly())
    frame = frame_of(cec.turn(StreamEvent(0, rows([1]))).record, 0)
    with pytest.raises(DamagedFrame, match="another approach"):
        SelfContained.recover(sums(count_window(5)), [frame])
    shard = written()
    spec = AggregateSpec(["k"], count_window(5), [Count()])
    with pytest.raises(DamagedFrame, match="another operator"):
        SelfContained.recover(lambda: Aggregate(spec, SCHEMA), shard.newest_first)
    with pytest.raises(DamagedFrame, match="another operator"):
        repeat(lambda: Aggregate(spec, SCHEMA), shard.newest_first)


def test_rows_that_do_not_fit_the_footprints_are_damage():
    """A window that opened with a tuple has a tuple."""
    shard, other = Shard(sums(count_window(5))), Shard(sums(count_window(5)))
    shard.turn([1, 2, 3], "input")
    other.turn([7, 7, 7], "input")
    theirs = {(section.kind, section.output): section for section in other.frames[0].sections}
    ours = shard.frames[0].sections
    swapped = [
        section if section.kind == SectionKind.OPENS else theirs[section.kind, section.output]
        for section in ours
    ]
    frame = shard.frames[0]._replace(sections=tuple(swapped))
    with pytest.raises(DamagedLog, match="not what this operator wrote"):
        SelfContained.recover(shard.build, [frame._replace(open_windows=3)])


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("ways", [("input",), ("checks",), ("input", "checks")], ids=str)
def test_hostile_sections_raise_nothing_but_damage(window, ways):
    """A frame's checksum finds any flipped bit; what passes it must still not break the process."""
    shard = written(ways, window)
    random = np.random.default_rng(11)
    for _ in range(100):
        frames = list(shard.newest_first)
        place = int(random.integers(len(frames)))
        frames[place] = _vandalised(frames[place], random)
        for use in (SelfContained.recover, repeat):
            with suppress(DamagedFrame, DamagedLog):
                use(shard.build, frames)


def _vandalised(frame, random):
    """One section with some bytes changed, cut off, or left out."""
    sections = list(frame.sections)
    place = int(random.integers(len(sections)))
    section = sections.pop(place)
    payload = bytearray(section.payload)
    how = random.integers(4)
    if how < 3 and payload:
        for _ in range(random.integers(1, 4)):
            payload[random.integers(len(payload))] = random.choice([0, 1, 127, 128, 255])
        if how == 2:
            payload = payload[: random.integers(len(payload))]
        sections.insert(place, Section(section.kind, memoryview(bytes(payload)), section.output))
    return frame._replace(sections=tuple(sections))
