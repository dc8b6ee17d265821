"""The state of an operator as rows: what its log says it had open, at any moment that is kept."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from rewake.log.retention import Retention
from rewake.model.errors import OutOfRange, SchemaMismatch, UsageError
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import Avg, Count, First, Last, Max, Min, Stddev, Sum
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.windows.specs import count_window, running_window, time_window
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy, Extent, OpenOnly
from rewake.recovery.self_contained.engine import SelfContained
from rewake.recovery.self_contained.order import in_key_order
from rewake.recovery.self_contained.ways import fewer_bytes
from rewake.spark.datasource.source import RewakeDataSource
from rewake.stores import create_log, open_log_writer

SCHEMA = pa.schema([("item", pa.int64()), ("price", pa.int64()), ("at", pa.int64())])


class CheckSome(CheckpointPolicy):
    """Every turn, a CHECK of the windows with the oldest footprints."""

    def __init__(self, most: int) -> None:
        self._most = most

    def checks(self, extent: Extent) -> Any:
        return extent.order.overdue(most_records=0, oldest_time=extent.position, limit=self._most)


class Run:
    """An operator under continuous eventual checkpointing with a real log, and its input."""

    def __init__(
        self, folder: Path, spec: AggregateSpec, schema: pa.Schema = SCHEMA, **metadata: Any
    ):
        self.folder, self.spec, self.schema = folder, spec, schema
        operator = Aggregate(spec, schema)
        described = {
            "schema": operator.output_schema.serialize().to_pybytes(),
            "operator": json.dumps(spec.describe()),
            "rows": schema.serialize().to_pybytes(),
        } | metadata
        create_log(folder, "log", {k: v for k, v in described.items() if v is not None})
        self.events: list[StreamEvent] = []

    def feed(self, batches: list[pa.RecordBatch], policy: Any = None) -> None:
        operator = ContinuousEventualCheckpointing(
            Aggregate(self.spec, self.schema), policy or OpenOnly()
        )
        for batch in batches:
            event = StreamEvent(operator.position, batch)
            self.events.append(event)
            turn = operator.turn(event)
            if turn.record is not None:
                with open_log_writer(self.folder) as writer:  # a segment of its own
                    writer.append(turn.record)

    def operator_at(self, position: int) -> Aggregate:
        """A new operator that has been fed the input before a position."""
        operator = Aggregate(self.spec, self.schema)
        for event in self.events:
            if event.end <= position:
                operator.process(event)
        return operator


def state(folder: Path, **options: str) -> pa.Table:
    made = RewakeDataSource({"path": str(folder), "kind": "state", **options})
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches, reader.target)


def batches(seed: int, turns: int, rows: int, items: int) -> list[pa.RecordBatch]:
    numbers = np.random.default_rng(seed)
    found = []
    for turn in range(turns):
        columns = [
            pa.array(numbers.integers(0, items, rows)),
            pa.array(numbers.integers(1, 100, rows)),
            pa.array(np.sort(numbers.integers(turn * 100, turn * 100 + 100, rows))),
        ]
        found.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return found


def open_in(operator: Aggregate) -> list[int]:
    ids = operator.opened_at
    return sorted(ids[ids >= 0].tolist())


@pytest.mark.parametrize("checks", [0, 3, 1000])
@pytest.mark.parametrize("position", [0, 40, 80, 200, 400, 10_000])
def test_the_state_as_of_a_position_is_what_the_operator_had_open(
    tmp_path: Path, checks: int, position: int
) -> None:
    """Fed with the input up to there; each CHECK is the state as of its footprint."""
    spec = AggregateSpec(["item"], count_window(10), [Avg("price"), Count()])
    run = Run(tmp_path / "log", spec)
    run.feed(batches(1, 10, 40, 12), CheckSome(checks) if checks else None)
    table = state(run.folder, asOfPosition=str(position))
    operator = run.operator_at(position)
    assert sorted(table["window"].to_pylist()) == open_in(operator)
    kinds = set(table["footprint"].to_pylist())
    assert kinds <= {"open", "check"}
    assert ("check" in kinds) == (checks > 0 and position > 0)
    for row in table.to_pylist():
        _assert_right(row, run)


def _assert_right(row: dict[str, Any], run: Run) -> None:
    """A window's key is that of the tuple that opened it; its state that of its tuples since."""
    tuples = pa.Table.from_batches([event.batch for event in run.events])
    assert tuples["item"][row["window"]].as_py() == row["item"]
    if row["footprint"] == "open":
        assert row["footprint_time"] == row["window"] - 1
        assert (row["tuples"], row["sum_price"], row["nulls_price"]) == (0, None, None)
        return
    seen = tuples.slice(row["window"], row["footprint_time"] + 1 - row["window"]).to_pylist()
    prices = [each["price"] for each in seen if each["item"] == row["item"]]
    assert (row["tuples"], row["sum_price"]) == (len(prices), sum(prices))


def test_without_a_moment_the_state_is_that_of_now(tmp_path: Path) -> None:
    """The latest frame, whatever comes after the plan was made."""
    run = Run(tmp_path / "log", AggregateSpec(["item"], count_window(10), [Sum("price")]))
    run.feed(batches(2, 5, 40, 12), CheckSome(5))
    now = state(run.folder)
    assert sorted(now["window"].to_pylist()) == open_in(run.operator_at(200))
    assert now.schema.names == [
        "item", "window", "footprint", "footprint_time", "tuples", "nulls_price", "sum_price",
        "shard",
    ]  # fmt: skip


def test_the_state_as_of_a_time_follows_the_streams_clock(tmp_path: Path) -> None:
    """Time windows have panes; the clock is that of the frames."""
    spec = AggregateSpec(["item"], time_window(200, every=100), [Max("price")], time="at")
    run = Run(tmp_path / "log", spec)
    run.feed(batches(3, 6, 40, 6), CheckSome(4))
    for turns in (1, 3, 6):
        operator = run.operator_at(40 * turns)
        table = state(run.folder, asOf=str(operator.clock))
        assert sorted(table["window"].to_pylist()) == open_in(operator)
        assert set(table.schema.names) >= {"pane", "tuples", "max_price"}
    assert state(run.folder, asOf="-5").num_rows == 0


def test_every_aggregate_shows_its_state_in_its_own_type(tmp_path: Path) -> None:
    """Null where nothing has been seen; functions over one column share what they can."""
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("x", pa.float64()),
            ("when", pa.timestamp("ms")),
            ("ok", pa.bool_()),
        ]
    )
    functions = [Avg("x"), Sum("x"), Min("x"), Stddev("x"), First("when"), Last("ok"), Count("x")]
    run = Run(tmp_path / "log", AggregateSpec(["key"], count_window(9), functions), schema)
    values = {
        "key": ["a", "a", None, "b"],
        "x": [1.5, 2.5, None, 4.0],
        "when": [5, 6, 7, None],
        "ok": [None, True, False, None],
    }
    run.feed([pa.RecordBatch.from_pydict(values, schema)], CheckSome(99))
    rows = {row.pop("key"): row for row in state(run.folder).sort_by("window").to_pylist()}
    assert list(rows["a"]) == [
        "window", "footprint", "footprint_time", "tuples", "nulls_x", "nulls_when", "nulls_ok",
        "sum_x", "min_x", "count_x", "mean_x", "squares_x", "first_when", "first_when_at",
        "last_ok", "last_ok_at", "shard",
    ]  # fmt: skip
    a, nobody, b = rows["a"], rows[None], rows["b"]
    assert (a["sum_x"], a["min_x"], a["count_x"], a["mean_x"], a["squares_x"]) == (
        4,
        1.5,
        2,
        2,
        0.5,
    )
    assert (a["nulls_x"], a["nulls_ok"], a["last_ok"], a["last_ok_at"]) == (0, 1, True, 1)
    assert a["first_when"].microsecond == 5_000
    assert (nobody["sum_x"], nobody["min_x"], nobody["nulls_x"], nobody["last_ok"]) == (
        None,
        None,
        1,
        False,
    )
    assert (b["first_when"], b["first_when_at"], b["last_ok"]) == (None, None, None)


@pytest.mark.parametrize("of_input", [True, False])
def test_decimals_and_texts_are_one_column_of_state_each(tmp_path: Path, of_input: bool) -> None:
    """As exact and as long as they are; null where nothing has been seen."""
    schema = pa.schema(
        [("key", pa.decimal128(5, 1)), ("x", pa.decimal128(9, 2)), ("s", pa.string())]
    )
    functions = [Avg("x"), Min("x"), Last("x"), Max("s"), First("s"), Count("s")]
    spec = AggregateSpec(["key"], count_window(9), functions)
    run = Run(tmp_path / "log", spec, schema, **({} if of_input else {"rows": None}))
    values = {
        "key": [Decimal("1.5"), Decimal("1.5"), None, Decimal("-2.0")],
        "x": [Decimal("-0.01"), Decimal("7.50"), None, Decimal("4.00")],
        "s": ["paid", "", "sent", None],
    }
    run.feed([pa.RecordBatch.from_pydict(values, schema)], CheckSome(99))
    table = state(run.folder)
    assert table.schema.field("sum_x").type == pa.decimal128(19 if of_input else 38, 2)
    rows = {row.pop("key"): row for row in table.to_pylist()}
    a, nobody, b = rows[Decimal("1.5")], rows[None], rows[Decimal("-2.0")]
    assert (a["sum_x"], a["min_x"]) == (Decimal("7.49"), Decimal("-0.01"))
    assert (a["last_x"], a["last_x_at"]) == (Decimal("7.50"), 1)
    assert (a["max_s"], a["first_s"], a["first_s_at"]) == ("paid", "paid", 0)
    assert (nobody["sum_x"], nobody["min_x"], nobody["last_x"]) == (None, None, None)
    assert (nobody["max_s"], nobody["first_s"]) == ("sent", "sent")
    assert (b["max_s"], b["first_s"], b["first_s_at"], b["nulls_s"]) == (None, None, None, 1)


def test_overlapping_windows_show_their_panes(tmp_path: Path) -> None:
    """And a timeout when each was opened."""
    sliding = AggregateSpec(["item"], count_window(10, every=5), [Count()])
    run = Run(tmp_path / "sliding", sliding)
    run.feed(batches(4, 3, 40, 4), CheckSome(3))
    assert state(run.folder)["pane"].null_count == 0
    waiting = AggregateSpec(["item"], count_window(10), [Count()], time="at", timeout=1000)
    other = Run(tmp_path / "waiting", waiting)
    other.feed(batches(4, 3, 40, 40), CheckSome(3))
    table = state(other.folder)
    assert sorted(table["window"].to_pylist()) == open_in(other.operator_at(120))
    assert min(table["opened_time"].to_pylist()) >= 0


def test_a_moment_outside_of_what_is_kept_says_what_there_is(tmp_path: Path) -> None:
    """What was open then left footprints in frames that are gone."""
    run = Run(tmp_path / "log", AggregateSpec(["item"], count_window(10), [Sum("price")]))
    run.feed(batches(5, 10, 40, 12), CheckSome(1000))
    with open_log_writer(run.folder) as writer:
        writer.trim(6, Retention(max_bytes=0))
    message = (
        "as of position {} cannot be told any more: the log has frames of input positions 280 to"
    )
    with pytest.raises(OutOfRange, match=message.format(40)):
        state(run.folder, asOfPosition="40")
    table = state(run.folder, asOfPosition="320")
    assert sorted(table["window"].to_pylist()) == open_in(run.operator_at(320))


def test_a_log_that_is_not_an_operators_has_no_state(tmp_path: Path) -> None:
    """It says so, and what to look at instead."""
    create_log(tmp_path / "log", "log", {"schema": SCHEMA.serialize().to_pybytes()})
    with pytest.raises(UsageError, match=r"which operator made it.*kind=control"):
        state(tmp_path / "log")


def test_a_log_that_does_not_say_its_input_is_read_by_its_results(tmp_path: Path) -> None:
    """Keys have the same type there; sums that nobody states exactly are floats."""
    spec = AggregateSpec(["item"], count_window(10), [Avg("price"), Max("price")])
    run = Run(tmp_path / "log", spec, rows=None)
    run.feed(batches(6, 3, 40, 12), CheckSome(20))
    table = state(run.folder)
    assert table.schema.field("sum_price").type == pa.float64()
    assert table.schema.field("max_price").type == pa.int64()
    assert sorted(table["window"].to_pylist()) == open_in(run.operator_at(120))
    dropped = pa.schema([("other", pa.int64())]).serialize().to_pybytes()
    create_log(
        tmp_path / "keyless",
        "keyless",
        {"schema": dropped, "operator": json.dumps(spec.describe())},
    )
    with pytest.raises(SchemaMismatch, match="of which type the key column 'item' is"):
        state(tmp_path / "keyless")


def test_a_key_keeps_its_name_when_another_column_would_have_it(tmp_path: Path) -> None:
    """The other gets an underscore."""
    schema = pa.schema([("window", pa.int64())])
    run = Run(tmp_path / "log", AggregateSpec(["window"], count_window(3), [Count()]), schema)
    run.feed([pa.RecordBatch.from_pydict({"window": [7, 7, 8]}, schema)])
    table = state(run.folder)
    assert table["window"].to_pylist() == [7, 8]
    assert table["_window"].to_pylist() == [0, 2]


def test_shards_without_a_manifest_are_read_together(tmp_path: Path) -> None:
    """A folder of shard logs, as an operator inside of Spark's micro-batches keeps them."""
    spec = AggregateSpec(["item"], count_window(10), [Sum("price")])
    for number in range(2):
        run = Run(tmp_path / f"shard-000{number}", spec)
        run.feed(batches(number, 3, 40, 12))
    table = state(tmp_path)
    assert set(table["shard"].to_pylist()) == {0, 1}
    of_first = table.filter(pa.compute.equal(table["shard"], 0))
    assert state(tmp_path / "shard-0000").num_rows == of_first.num_rows


@pytest.mark.parametrize("window", [running_window(), count_window(7)])
@pytest.mark.parametrize("way", ["input", "checks", None])
def test_logs_that_hold_their_own_input_show_their_state_too(
    tmp_path: Path, window: Any, way: str | None
) -> None:
    """Whichever way a batch was recorded; nothing of it is replayed."""
    run = Run(tmp_path / "log", AggregateSpec(["item"], window, [Sum("price")]))
    choose = fewer_bytes if way is None else lambda _: way == "checks"
    operator = SelfContained(Aggregate(run.spec, SCHEMA), choose=choose)
    with open_log_writer(run.folder) as writer:
        for number, batch in enumerate(batches(8, 4, 40, 12)):
            event = StreamEvent(operator.position, batch)
            run.events.append(in_key_order(operator.operator, event))
            turn = operator.turn(event, bytes(16) + number.to_bytes(8, "little"))
            assert turn.record is not None
            writer.append(turn.record)
    for position in (40, 120, 160):
        table = state(run.folder, asOfPosition=str(position))
        assert sorted(table["window"].to_pylist()) == open_in(run.operator_at(position))
        for row in table.to_pylist():
            _assert_right(row, run)
