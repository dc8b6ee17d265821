"""A case: a stream of tuples, an aggregate over it, and the lives of the process that computes it.

Everything in a case is a plain value, so a failing one prints as something to read: rows are tuples
in the order of the schema's columns, a life is how its process cut the input and when it died.
Zero, one and empty come first wherever a strategy chooses, so failing cases shrink towards them.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import strength
from hypothesis import settings
from hypothesis import strategies as st

from rewake.operators.aggregate.functions import (
    AggregateFunction,
    Avg,
    Count,
    First,
    Last,
    Max,
    Min,
    Stddev,
    Sum,
    UserDefined,
)
from rewake.operators.aggregate.operator import Aggregate, AggregateSpec
from rewake.operators.columns.arrays import Int32s
from rewake.operators.windows.specs import count_window, time_window
from rewake.recovery.policies.cost_benefit import CostBenefitPolicy
from rewake.recovery.policies.policy import CheckpointPolicy, Extent, OpenOnly
from rewake.recovery.policies.recover_within import RecoverWithinPolicy
from rewake.recovery.policies.shots import ShotsPolicy
from rewake.recovery.policies.targets import TargetsPolicy
from rewake.recovery.promises.rates import Costs, RecoveryRates

Row = tuple[Any, ...]


def examples(number: int) -> settings:
    """So many examples where there is time, a share of them in other runs."""
    return settings(max_examples=strength.examples(number))


def in_pieces(number: int) -> pytest.MarkDecorator:
    """A long property as so many tests, which workers can share: the first argument says which."""
    return pytest.mark.parametrize("piece", range(number))


# --- columns ---------------------------------------------------------------------------------

_DAY, _NOON = dt.date(1969, 12, 31), dt.datetime(2020, 2, 29, 12)

# Per type a few values that could be mistaken for one another, or for a sentinel.
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [0, 1, None, -1, 2**63 - 1, -(2**63), 7]),
    "int8": (pa.int8(), [0, 1, None, -1, 127, -128]),
    "int16": (pa.int16(), [0, 1, None, -1, 2**15 - 1]),
    "int32": (pa.int32(), [0, 1, None, -(2**31), 2**31 - 1]),
    "uint8": (pa.uint8(), [0, 1, None, 255]),
    "uint16": (pa.uint16(), [0, 1, None, 2**16 - 1]),
    "uint32": (pa.uint32(), [0, 1, None, 2**32 - 1, 2**31]),
    "uint64": (pa.uint64(), [0, 1, None, 2**64 - 1, 2**63]),
    "bool": (pa.bool_(), [False, True, None]),
    "string": (pa.string(), ["", "a", None, "ab", "b\0", "\u00e9", "0123456789" * 3]),
    "large_string": (pa.large_string(), ["", "a", None, "aa"]),
    "binary": (pa.binary(), [b"", b"\0", None, b"\0\0", b"\xff"]),
    "large_binary": (pa.large_binary(), [b"", b"\0", None, b"\1"]),
    "float64": (pa.float64(), [0.0, 1.5, None, float("inf"), -1.5]),
    "float32": (pa.float32(), [0.0, 1.5, None, -2.25]),
    "date32": (pa.date32(), [dt.date(1970, 1, 1), _DAY, None, dt.date(2024, 2, 29)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), None, _NOON]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["", "a", None, "b"]),
    "decimal": (
        pa.decimal128(38, 2),
        [Decimal(each) for each in ("0.00", "0.01")]
        + [None]
        + [Decimal(each) for each in ("-0.01", "9" * 36 + ".99", f"{2**64}.00", "1.00")],
    ),
}

_PRICES = ["0.000", "1.500", None, "-0.001", "999999999.999", "-7.250", "0.001"]
# Halves of 64 bits carry and borrow; sums and averages of some dozens still have 38 digits.
_LARGE = "12345678901234567890123456789012.34"
_FORTUNES = ["0.00", "1.00", None, _LARGE, f"-{_LARGE}", f"{2**64}.00", f"-{2**64}.01", "-0.01"]

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [0, 1, None, 127, -128]),
    "uint32": (pa.uint32(), [0, 1, None, 2**32 - 1]),
    "int64": (pa.int64(), [0, 1, None, -5]),
    "float32": (pa.float32(), [0.0, 1.5, None, -0.25]),
    "bool": (pa.bool_(), [False, True, None]),
    "date32": (pa.date32(), [dt.date(1970, 1, 1), None, _DAY]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1970, 1, 1), None, _NOON]),
    "decimal": (
        pa.decimal128(12, 3),
        [None if each is None else Decimal(each) for each in _PRICES],
    ),
    "wide_decimal": (
        pa.decimal128(38, 2),
        [None if each is None else Decimal(each) for each in _FORTUNES],
    ),
    "string": (pa.string(), ["", "a", None, "ab", "b\0", "\u00e9", "0123456789" * 3]),
    "large_binary": (pa.large_binary(), [b"", b"\0", None, b"\0\0", b"\xff"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["", "a", None, "b"]),
}

TIMES: dict[str, pa.DataType] = {"int64": pa.int64(), "timestamp": pa.timestamp("ms")}
_EPOCH = dt.datetime(1970, 1, 1)


# --- functions -------------------------------------------------------------------------------


def _decay(state: Any, value: Any) -> Any:
    return (state[0] * 0.5 + value, state[1] + 1.0)


def _decay_merged(older: Any, newer: Any) -> Any:
    return (older[0] * 0.5 ** newer[1] + newer[0], older[1] + newer[1])


def _decayed(state: Any) -> Any:
    return state[0]


# Order matters to it, and merging is not addition.
DECAY = UserDefined(
    "v", "decay", initial=(0.0, 0.0), update=_decay, merge=_decay_merged, result=_decayed
)


def oracle_decay(values: list[Any]) -> float:
    """What `DECAY` yields, from the list of values."""
    floats = map(float, values)
    return float(sum(value * 0.5 ** (len(values) - 1 - i) for i, value in enumerate(floats)))


_NUMBERS = ("count", "sum", "avg", "min", "max", "first", "last", "stddev")
_CLASSES: dict[str, type[AggregateFunction]] = {
    "count": Count,
    "sum": Sum,
    "avg": Avg,
    "min": Min,
    "max": Max,
    "first": First,
    "last": Last,
    "stddev": Stddev,
}
FUNCTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "count": (("count", ""),),
    "integers": (("count", ""), *((kind, "v") for kind in _NUMBERS)),
    "floats": (("count", ""), *((kind, "f") for kind in _NUMBERS)),
    "others": tuple((kind, "w") for kind in ("count", "min", "max", "first", "last")),
    "user": (("sum", "v"), ("decay", "v")),
    "mixed": (("avg", "v"), ("first", "f"), ("decay", "v"), ("max", "w"), ("stddev", "f")),
    "decimals": (("count", ""), *((kind, "w") for kind in _NUMBERS), ("decay", "w")),
}


def oracle_functions(name: str) -> list[tuple[str, str, str]]:
    """A set of functions as the oracle wants them."""
    return [(kind, column, f"{kind}_{column}") for kind, column in FUNCTIONS[name]]


def _engine_functions(name: str) -> list[AggregateFunction]:
    return [
        UserDefined(column, f"{kind}_{column}", (0.0, 0.0), _decay, _decay_merged, _decayed)
        if kind == "decay"
        else _CLASSES[kind](column, f"{kind}_{column}")
        for kind, column in FUNCTIONS[name]
    ]


# --- the case --------------------------------------------------------------------------------


class PolicyOf(NamedTuple):
    """A checkpoint policy, to be made anew for every life."""

    kind: Callable[..., CheckpointPolicy]
    arguments: tuple[tuple[str, Any], ...] = ()

    def make(self) -> CheckpointPolicy:
        """A fresh one."""
        return self.kind(**dict(self.arguments))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.kind.__name__}({inside})"


class Hurried(RecoverWithinPolicy):
    """Keeps a promise in a time that runs fast: between two turns it is due to look again."""

    def checks(self, extent: Extent) -> Int32s:
        """As its base, later."""
        return super().checks(extent._replace(now_ms=extent.now_ms * 100))


def promised(target_ms: float, load_us: float, replay_us: float, budget: float) -> Hurried:
    """A policy that begins with these costs."""
    costs = Costs(load_us=load_us, replay_us=replay_us, work_us=1, check_us=10, fixed_ms=1)
    return Hurried(target_ms, RecoveryRates(costs), budget=budget)


OPEN_ONLY = PolicyOf(OpenOnly)


class Life(NamedTuple):
    """One process: how it cuts the input (0: an event without tuples), and when it dies.

    It dies after so many turns (-1: not at all); with `lost`, the record of its last turn never
    became durable.
    """

    cuts: tuple[int, ...] = (1,)
    policy: PolicyOf = OPEN_ONLY
    turns: int = -1
    lost: bool = False


IMMORTAL = Life()


@dataclass(frozen=True)
class Case:
    """A stream, and an aggregate over it.

    Rows are (keys..., v, f, w, t); `punctuations` are (rows before it, time); `gaps` are (rows
    before it, positions without tuples).
    """

    keys: tuple[str, ...]
    window: tuple[str, int, int]
    functions: str
    rows: tuple[Row, ...]
    punctuations: tuple[tuple[int, int], ...] = ()
    slack: int = 0
    timeout: int | None = None
    value: str = "int64"
    time: str = "int64"
    forgetful: bool = False  # forget idle keys at once
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def names(self) -> list[str]:
        """Column names."""
        return [*self.by, "v", "f", "w", "t"]

    @property
    def by(self) -> list[str]:
        """Names of the key columns."""
        return [f"k{i}" for i in range(len(self.keys))]

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Of the input."""
        kinds = [KEYS[kind][0] for kind in self.keys]
        kinds += [pa.int64(), pa.float64(), VALUES[self.value][0], TIMES[self.time]]
        return pa.schema(list(zip(self.names, kinds, strict=True)))

    @functools.cached_property
    def batch(self) -> pa.RecordBatch:
        """The whole input."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.names)
        schema = self.schema
        arrays = [pa.array(column[1], column[0].type) for column in zip(schema, columns)]  # noqa: B905
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def spec(self) -> AggregateSpec:
        """What is computed."""
        kind, size, advance = self.window
        window = count_window(size, advance) if kind == "count" else time_window(size, advance)
        return AggregateSpec(
            self.by,
            window,
            _engine_functions(self.functions),
            time="t",
            slack=self.slack,
            timeout=self.timeout,
            route_late=True,
        )

    def operator(self) -> Aggregate:
        """A new operator."""
        return Aggregate(self.spec(), self.schema)

    def rows_as_dicts(self) -> list[dict[str, Any]]:
        """Rows as the oracle wants them."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


# --- strategies ------------------------------------------------------------------------------

_STEPS = [0, 1, 1, 0, 2, 7, -1, -3, -9]
_FLOATS = [0.0, 1.5, None, 0.1, -3.7, 1e9 + 0.3]
_ODD_FLOATS = [*_FLOATS, float("nan"), float("inf"), float("-inf"), -0.0]
_KEY_KINDS = [("int64",), ("string",), ("int64", "string")]
_KEY_KINDS += [(kind,) for kind in KEYS if kind not in ("int64", "string")]
_KEY_KINDS += [
    ("decimal", "int8"),
    ("bool", "uint64"),
    ("dictionary", "float32", "int8"),
    ("binary", "date32"),
]


@functools.cache
def _key_rows(keys: tuple[str, ...]) -> list[Row]:
    """Some keys: all values of a single column, or mixtures of the first values of several."""
    if len(keys) == 1:
        return [(value,) for value in KEYS[keys[0]][1]]
    return list(itertools.product(*(KEYS[kind][1][:3] for kind in keys)))[:8]


@functools.cache
def _value_rows(value: str, odd: bool) -> list[Row]:
    """Values of v, f and w, mixed; the first are the simplest.  One choice is faster than three."""
    integers, floats, others = (
        [0, 1, None, -7, 40],
        _ODD_FLOATS if odd else _FLOATS,
        VALUES[value][1],
    )
    return [
        (integers[i % len(integers)], floats[i * 3 % len(floats)], others[i * 7 % len(others)])
        for i in range(40)
    ]


@st.composite
def _rows(draw: st.DrawFn, keys: tuple[str, ...], value: str, time: str, odd: bool) -> list[Row]:
    least = draw(st.sampled_from([0, 8, 20]))
    known = _key_rows(keys)[: draw(st.sampled_from([1, 3, 8]))]
    row = st.tuples(
        st.sampled_from(known), st.sampled_from(_value_rows(value, odd)), st.sampled_from(_STEPS)
    )
    now = draw(st.sampled_from([0, 0, -20, 10**6]))
    rows = []
    for key, values, step in draw(st.lists(row, min_size=least, max_size=least + 15)):
        now += max(step, 0)
        instant: Any = now + min(step, 0)
        if time == "timestamp":
            instant = _EPOCH + dt.timedelta(milliseconds=instant)
        rows.append((*key, *values, instant))
    return rows


def instant_of(time: Any) -> int:
    """An event time as a number."""
    if isinstance(time, int):
        return time
    return int((time - _EPOCH) / dt.timedelta(milliseconds=1))


@st.composite
def cases(draw: st.DrawFn, *, odd_floats: bool = True) -> Case:
    """Any stream and any aggregate; `odd_floats` are those no oracle agrees about."""
    keys = draw(st.sampled_from(_KEY_KINDS))
    kind = draw(st.sampled_from(["count", "time"]))
    size = draw(st.integers(1, 9))
    advance = draw(st.one_of(st.just(size), st.integers(1, 12)))
    value = draw(st.sampled_from(list(VALUES)))
    time = draw(st.sampled_from(["int64", "int64", "timestamp"]))
    rows = draw(_rows(keys, value, time, odd_floats))
    marks = st.tuples(st.integers(0, len(rows)), st.sampled_from([0, 2, 5, -3, 40]))
    punctuations = {}
    for after, ahead in draw(st.lists(marks, max_size=3)):
        latest = max([instant_of(row[-1]) for row in rows[:after]], default=0)
        punctuations[after] = latest + ahead
    exact = ["decimals"] if pa.types.is_decimal(VALUES[value][0]) else []
    functions = [name for name in FUNCTIONS if name != "decimals"]
    return Case(
        keys=keys,
        window=(kind, size, advance),
        functions=draw(st.sampled_from([*exact, *functions])),
        rows=tuple(rows),
        punctuations=tuple(sorted(punctuations.items())),
        slack=draw(st.integers(0, 4)) if kind == "time" else 0,
        timeout=draw(st.none() | st.integers(1, 8)) if kind == "count" else None,
        value=value,
        time=time,
        forgetful=draw(st.booleans()),
        gaps=tuple(sorted(draw(_gaps(len(rows))).items())),
    )


def _gaps(rows: int) -> st.SearchStrategy[dict[int, int]]:
    """Where positions have no tuples, also at the very end, and how many."""
    return st.dictionaries(st.integers(0, rows), st.sampled_from([1, 2, 7, 40]), max_size=4)


def _policy(kind: Callable[..., CheckpointPolicy], **choices: Any) -> st.SearchStrategy[PolicyOf]:
    drawn = st.tuples(*(st.tuples(st.just(name), choice) for name, choice in choices.items()))
    return drawn.map(lambda arguments: PolicyOf(kind, arguments))


POLICIES = st.one_of(
    st.just(OPEN_ONLY),
    _policy(
        TargetsPolicy,
        records=st.sampled_from([0, 2, 5, 12]),
        tuples=st.sampled_from([0, 2, 5, 20]),
        interval_ms=st.just(1),
        period_ms=st.sampled_from([1, 3]),
        check_us=st.sampled_from([1000, 300, 1]),
    ),
    _policy(
        ShotsPolicy,
        every=st.integers(1, 10),
        slow_after=st.integers(0, 10),
        windows=st.integers(1, 4),
    ),
    _policy(
        CostBenefitPolicy,
        load_us=st.just(1),
        replay_us=st.just(1),
        check_us=st.just(1),
        patience=st.sampled_from([1, 0.1, 5]),
        period_ms=st.sampled_from([0, 2]),
        at_most=st.sampled_from([10, 1]),
    ),
    _policy(
        promised,
        target_ms=st.sampled_from([2, 6, 20, 200]),
        load_us=st.sampled_from([1, 1000]),
        replay_us=st.sampled_from([1, 1000]),
        budget=st.sampled_from([1, 0.001]),
    ),
)

CUTS = st.tuples(
    st.lists(st.sampled_from([1, 2, 3, 0, 5, 20]), max_size=3), st.sampled_from([1, 2, 40])
).map(lambda cuts: (*cuts[0], cuts[1]))

LIVES = st.builds(Life, CUTS, POLICIES, st.integers(0, 15), st.booleans())
LAST_LIVES = st.builds(Life, CUTS, POLICIES, st.just(-1), st.just(False))
CRASHES = st.lists(LIVES, min_size=1, max_size=4)
# Three for every case: drawing a case costs more than running it.
SCHEDULES = st.tuples(*[st.tuples(CRASHES, LAST_LIVES)] * 3)
Schedule = tuple[list[Life], Life]
