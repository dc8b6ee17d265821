"""The state of sessions and of keyed processing as rows, at any moment that is kept."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from rewake.model.errors import SchemaMismatch
from rewake.model.stream_event import StreamEvent
from rewake.operators.aggregate.functions import (
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    UserDefined,
)
from rewake.operators.aggregate.operator import AggregateSpec
from rewake.operators.keyed.described import process_to_json
from rewake.operators.keyed.operator import ProcessSpec
from rewake.operators.keyed.state import state_fields
from rewake.operators.windows.specs import SessionWindow
from rewake.recovery.eventual.engine import ContinuousEventualCheckpointing
from rewake.recovery.policies.policy import CheckpointPolicy, Extent
from rewake.recovery.self_contained.engine import SelfContained
from rewake.spark.datasource.source import RewakeDataSource
from rewake.stores import create_log, open_log_writer

SCHEMA = pa.schema([("item", pa.string()), ("price", pa.int64()), ("at", pa.timestamp("ms"))])
GAP_MS, SLACK_MS = 30, 60
FUNCTIONS = [Avg("price"), Min("price"), Max("price"), First("price"), Last("price"), Count()]
SESSIONS = AggregateSpec(["item"], SessionWindow("30ms"), FUNCTIONS, "at", slack="60ms")


class CheckSome(CheckpointPolicy):
    """Every turn, a CHECK of the parts with the oldest footprints."""

    def __init__(self, most: int) -> None:
        self._most = most

    def checks(self, extent: Extent) -> Any:
        return extent.order.overdue(most_records=0, oldest_time=extent.position, limit=self._most)


def written(
    folder: Path,
    spec: Any,
    batches: list[pa.RecordBatch],
    schema: pa.Schema = SCHEMA,
    **metadata: Any,
) -> Path:
    """The log of an operator that was given these batches, as a node's says what made it."""
    said: dict[str, Any] = {
        "schema": spec.operator(schema).output_schema.serialize().to_pybytes(),
        "operator": json.dumps({"kind": spec.kind, **spec.describe()}),
        "rows": schema.serialize().to_pybytes(),
    }
    said |= metadata
    create_log(folder, "log", {name: text for name, text in said.items() if text is not None})
    operator = ContinuousEventualCheckpointing(spec.operator(schema), CheckSome(4))
    with open_log_writer(folder) as writer:
        for batch in batches:
            turn = operator.turn(StreamEvent(operator.position, batch))
            if turn.record is not None:
                writer.append(turn.record)
    return folder


def state(folder: Path, **options: str) -> pa.Table:
    made = RewakeDataSource({"path": str(folder), "kind": "state", **options})
    reader = made.reader(made.schema())
    batches = [batch for each in reader.partitions() for batch in reader.read(each)]
    return pa.Table.from_batches(batches, reader.target)


def jumbled(seed: int, turns: int = 12, rows: int = 30) -> list[pa.RecordBatch]:
    """Times out of order, so that sessions grow together and tuples are late; some nulls."""
    random = np.random.default_rng(seed)
    found = []
    for turn in range(turns):
        times = turn * 40 + random.integers(-80, 80, rows)
        prices = random.integers(-50, 50, rows)
        columns = [
            pa.array([f"i{n}" for n in random.integers(0, 9, rows)]),
            pa.array(prices, mask=random.random(rows) < 0.2),
            pa.array(times).cast(pa.timestamp("ms")),
        ]
        found.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return found


# --- sessions ----------------------------------------------------------------------------------


class Session(NamedTuple):
    """Positions, times and prices of its tuples, in the order of arrival."""

    tuples: tuple[tuple[int, int, int | None], ...]

    @property
    def first(self) -> int:
        return min(at for _, at, _ in self.tuples)

    @property
    def end(self) -> int:
        return max(at for _, at, _ in self.tuples) + GAP_MS

    def row(self) -> dict[str, Any]:
        """As the state shows it."""
        known = [(position, price) for position, _, price in self.tuples if price is not None]
        prices = [price for _, price in known]
        return {
            "session_start": self.first,
            "session_end": self.end,
            "tuples": len(self.tuples),
            "nulls_price": len(self.tuples) - len(known),
            "sum_price": sum(prices) if prices else None,
            "min_price": min(prices, default=None),
            "max_price": max(prices, default=None),
            "first_price": prices[0] if prices else None,
            "first_price_at": known[0][0] if known else None,
            "last_price": prices[-1] if prices else None,
            "last_price_at": known[-1][0] if known else None,
        }


def open_sessions(tuples: list[dict[str, Any]]) -> dict[str, list[Session]]:
    """Of each item, the sessions that are open after these tuples."""
    found: dict[str, list[Session]] = {}
    clock = -(2**60)
    for position, each in enumerate(tuples):
        at, mine = each["ms"], found.setdefault(each["item"], [])
        near = [one for one in mine if one.first - GAP_MS < at < one.end]
        clock = max(clock, at - SLACK_MS)
        if near or at + GAP_MS > clock:
            joined = [one for some in near for one in some.tuples]
            rest = [one for one in mine if one not in near]
            joined = sorted([*joined, (position, at, each["price"])])
            found[each["item"]] = [*rest, Session(tuple(joined))]
        found = {item: [one for one in some if one.end > clock] for item, some in found.items()}
    return {item: some for item, some in found.items() if some}


def all_tuples(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(batches)
    return table.append_column("ms", table["at"].cast(pa.int64())).to_pylist()


def in_ms(table: pa.Table) -> pa.Table:
    for name in ("session_start", "session_end"):
        place = table.schema.get_field_index(name)
        ms = table[name].cast(pa.timestamp("ms")).cast(pa.int64())
        table = table.set_column(place, name, ms)
    return table


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("position", [90, 240, 10_000])
def test_open_sessions_are_rows(tmp_path: Path, seed: int, position: int) -> None:
    """Those of CHECKs with all that is known of them; of an OPEN, its key and no more."""
    batches = jumbled(seed)
    tuples = all_tuples(batches)
    table = in_ms(state(written(tmp_path / "log", SESSIONS, batches), asOfPosition=str(position)))
    assert set(table["item"].to_pylist()) == set(open_sessions(tuples[:position]))
    checked: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["footprint"] == "open":
            assert (row["session_start"], row["tuples"], row["sum_price"]) == (None, 0, None)
        else:
            checked.setdefault((row["item"], row["footprint_time"]), []).append(row)
    assert checked
    for (item, time), rows in checked.items():
        expected = [one.row() for one in open_sessions(tuples[: time + 1])[item]]
        shown = [{name: row[name] for name in expected[0]} for row in rows]
        assert sorted(shown, key=str) == sorted(expected, key=str)


def test_decimals_and_texts_of_sessions_that_grew_together_are_those_of_all_their_tuples(
    tmp_path: Path,
) -> None:
    """Two sessions and the tuple between them, which is null in one column."""
    functions = [Avg("x"), Min("x"), Max("s"), First("s"), Last("s")]
    spec = AggregateSpec(["item"], SessionWindow("30ms"), functions, "at", slack="1s")
    schema = pa.schema(
        {
            "item": pa.string(),
            "x": pa.decimal128(9, 2),
            "s": pa.string(),
            "at": pa.timestamp("ms"),
        }
    )
    rows = [
        ("a", Decimal("0.10"), "sent", 50),
        ("a", Decimal("0.20"), "paid", 0),
        ("b", None, None, 50),
        ("a", None, "back", 25),
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    arrays = [pa.array(*each) for each in zip(columns, schema.types, strict=True)]
    whole = pa.record_batch(arrays, schema=schema)
    batches = [whole.slice(place, 1) for place in range(len(rows))]
    table = state(written(tmp_path / "log", spec, batches, schema))
    found = {row["item"]: row for row in table.to_pylist()}
    a, b = found["a"], found["b"]
    assert (a["tuples"], a["sum_x"], a["min_x"]) == (3, Decimal("0.30"), Decimal("0.10"))
    assert (a["max_s"], a["first_s"], a["last_s"], a["last_s_at"]) == ("sent", "sent", "back", 3)
    assert (b["sum_x"], b["min_x"], b["max_s"], b["last_s"]) == (None, None, None, None)


def test_the_spread_of_sessions_that_grew_together_is_that_of_all_their_tuples(
    tmp_path: Path,
) -> None:
    """Two sessions and the tuple between them; a function of one's own cannot be made one."""
    own = UserDefined("price", "own", initial=(0.0,), update=_add, merge=_merge, result=_first)
    spec = AggregateSpec(["item"], SessionWindow("30ms"), [Stddev("price"), own], "at", slack="1s")
    rows = [("a", 1, 0), ("a", 5, 50), ("b", 7, 50), ("a", 9, 25)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    arrays = [pa.array(*each) for each in zip(columns, SCHEMA.types, strict=True)]
    whole = pa.record_batch(arrays, schema=SCHEMA)
    batches = [whole.slice(place, 1) for place in range(len(rows))]
    table = state(written(tmp_path / "log", spec, batches))
    found = {row["item"]: row for row in table.to_pylist()}
    assert (found["a"]["tuples"], found["a"]["count_price"], found["a"]["mean_price"]) == (3, 3, 5)
    assert found["a"]["squares_price"] == pytest.approx(32)
    assert found["a"]["own_0"] is None
    assert found["b"]["own_0"] == 7


def _add(state: tuple[float], value: float) -> tuple[float]:
    return (state[0] + value,)


def _merge(older: tuple[float], newer: tuple[float]) -> tuple[float]:
    return (older[0] + newer[0],)


def _first(state: tuple[float]) -> float:
    return state[0]


# --- keyed processing ----------------------------------------------------------------------------


def tally(item: str, rows: pa.RecordBatch, kept: dict[str, Any]) -> Any:
    """How many, the latest prices, and a timer behind the last."""
    prices = [each for each in rows.column("price").to_pylist() if each is not None]
    last = max(rows.column("at").cast(pa.int64()).to_pylist())
    known = {"n": kept["n"] + rows.num_rows, "word": item * 2, "latest": prices[-2:]}
    return [], known, last + 1000


def ring(_item: str, _time: int, kept: dict[str, Any]) -> Any:
    """Nothing happens."""
    return [], kept


STATE = {"n": (pa.int64(), 0), "word": pa.string(), "latest": pa.list_(pa.int64())}
KEYED = ProcessSpec(
    tally, ("item",), state_fields(STATE), pa.schema([("item", pa.string())]),
    time="at", each_key=True, on_timer=ring,
)  # fmt: skip
KEPT = pa.schema([(each.name, each.kind) for each in KEYED.state])


def assert_tallies(table: pa.Table, batches: list[pa.RecordBatch], position: int) -> None:
    """Every key that has come by is there; each CHECK is what the function had made by then."""
    tuples = all_tuples(batches)
    assert sorted(table["item"].to_pylist()) == sorted({row["item"] for row in tuples[:position]})
    checks = [row for row in table.to_pylist() if row["footprint"] == "check"]
    assert checks
    for row in checks:
        mine = [each for each in tuples[: row["footprint_time"] + 1] if each["item"] == row["item"]]
        assert (row["n"], row["word"]) == (len(mine), row["item"] * 2)
        assert row["timer"] is not None
        assert tuples[row["window"]]["item"] == row["item"]
    for row in table.to_pylist():
        if row["footprint"] == "open":
            assert (row["n"], row["word"], row["latest"], row["timer"]) == (None,) * 4


@pytest.mark.parametrize("position", [90, 10_000])
def test_the_state_of_keys_is_rows(tmp_path: Path, position: int) -> None:
    """As a node's log tells it; the function is not needed."""
    batches = jumbled(3)
    said = {"state": KEPT.serialize().to_pybytes()}
    folder = written(tmp_path / "log", KEYED, batches, **said)
    table = state(folder, asOfPosition=str(position))
    assert table.schema.names == [
        "item", "window", "footprint", "footprint_time", "timer", "n", "word", "latest", "shard",
    ]  # fmt: skip
    assert_tallies(table, batches, position)


def test_shards_of_micro_batches_show_the_state_of_their_keys(tmp_path: Path) -> None:
    """Their logs describe the function by name, and say of which types its state is."""
    batches = jumbled(4)
    create_log(
        tmp_path / "log",
        "log",
        {
            "schema": KEYED.output.serialize().to_pybytes(),
            "operator": json.dumps(process_to_json(KEYED)),
            "rows": SCHEMA.serialize().to_pybytes(),
        },
    )
    operator = SelfContained(KEYED.operator(SCHEMA), choose=lambda _: True)
    with open_log_writer(tmp_path / "log") as writer:
        for number, batch in enumerate(batches):
            identity = bytes(16) + number.to_bytes(8, "little")
            turn = operator.turn(StreamEvent(operator.position, batch), identity)
            assert turn.record is not None
            writer.append(turn.record)
    table = state(tmp_path / "log")
    assert set(table["item"].to_pylist()) == {row["item"] for row in all_tuples(batches)}
    of_item = {row["item"]: row["n"] for row in table.to_pylist()}
    counted = {item: sum(row["item"] == item for row in all_tuples(batches)) for item in of_item}
    assert of_item == counted


def test_a_log_that_does_not_say_its_types_says_so(tmp_path: Path) -> None:
    """Of keys and of sessions."""
    folder = written(tmp_path / "keyed", KEYED, jumbled(1))
    with pytest.raises(SchemaMismatch, match="of which types its state is"):
        state(folder)
    folder = written(tmp_path / "sessions", SESSIONS, jumbled(1), rows=None)
    with pytest.raises(SchemaMismatch, match="which columns its sessions were given"):
        state(folder)
