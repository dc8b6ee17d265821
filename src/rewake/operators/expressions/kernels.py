"""What Arrow's kernels do not do as SQL wants it: remainders, membership, choices, rounding casts.

Arguments and results are arrays with one entry per tuple, or scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.operators.columns.arrays import arrow_array

Run = Callable[[pa.RecordBatch], Any]

# Not by `pa.scalar`, which imports pandas to ask whether a number is one of its own.
_ZERO, _ONE, _MINUS_ONE = arrow_array(np.array([0, 1, -1]), pa.int64())
(_NOTHING,) = pa.nulls(1, pa.int64())


def safe_divisor(divisor: Any) -> Any:
    """Null for 0, and 1 for -1: the remainder is 0 either way, and -2**63 / -1 would overflow."""
    harmless = pc.if_else(pc.equal(divisor, _MINUS_ONE), _ONE, divisor)
    return pc.if_else(pc.equal(divisor, _ZERO), _NOTHING, harmless)


def integer_remainder(dividend: Any, divisor: Any) -> Any:
    """The remainder with the sign of the dividend, as in SQL; no quotient overflows."""
    quotient = pc.divide(dividend, divisor)
    return pc.subtract(dividend, pc.multiply(quotient, divisor))


def float_remainder(dividend: Any, divisor: Any) -> Any:
    """As C's fmod, which is exact; by zero it is NaN."""
    if isinstance(dividend, pa.Scalar) and isinstance(divisor, pa.Scalar):
        left, right = dividend.as_py(), divisor.as_py()
        if left is None or right is None:
            return pa.scalar(None, pa.float64())
        usable = right != 0 and math.isfinite(left)
        return pa.scalar(math.fmod(left, right) if usable else math.nan, pa.float64())
    valid = pc.and_(pc.is_valid(dividend), pc.is_valid(divisor))
    with np.errstate(invalid="ignore"):
        values = np.fmod(_floats(dividend), _floats(divisor))
    return pc.if_else(valid, pa.array(values, pa.float64()), pa.scalar(None, pa.float64()))


def _floats(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        return math.nan if value.as_py() is None else value.as_py()
    return value.to_numpy(zero_copy_only=False)


def round_to_integer(value: Any, options: pc.CastOptions) -> Any:
    """A float as an integer: the nearest one, halves to even."""
    return pc.cast(pc.round(value, round_mode="half_to_even"), options=options)


def text_length(value: Any) -> Any:
    """Characters, not bytes."""
    return pc.cast(pc.utf8_length(value), pa.int64())


def exactly(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """An integer literal as a narrower integer type, or None when it does not fit."""
    if not pa.types.is_integer(value.type) or not value.is_valid:
        return None
    try:
        return value.cast(kind)
    except pa.ArrowInvalid:
        return None


def membership(members: Sequence[pa.Scalar], kind: pa.DataType) -> Callable[[Any], Any]:
    """`value IN (members)` for literals: null when it cannot be known."""
    known = pa.array([each.as_py() for each in members if each.is_valid], kind)
    # Whether a value that is not found may still equal a null.
    absent = pa.scalar(None if len(known) < len(members) else False, pa.bool_())
    unknown = pa.scalar(None, pa.bool_())
    yes = pa.scalar(True)

    def kernel(value: Any) -> Any:
        found = pc.if_else(pc.is_in(value, value_set=known), yes, absent)
        return pc.if_else(pc.is_valid(value), found, unknown)

    return kernel


def choice(conditions: Sequence[Run], results: Sequence[Run], default: Run) -> Run:
    """`CASE`: the result of the first condition that holds.

    All branches are computed for all rows, which is fastest; only when that fails is each computed
    for its own rows, as SQL demands: `CASE WHEN good THEN CAST(x AS INT) END` must not fail.
    """

    def run(batch: pa.RecordBatch) -> Any:
        try:
            value = default(batch)
            for condition, result in zip(reversed(conditions), reversed(results), strict=True):
                holds = pc.fill_null(condition(batch), False)
                value = pc.if_else(holds, result(batch), value)
        except pa.ArrowInvalid:
            return _choose_by_row(conditions, results, default, batch)
        return value

    return run


def _choose_by_row(
    conditions: Sequence[Run], results: Sequence[Run], default: Run, batch: pa.RecordBatch
) -> pa.Array:
    rows = np.arange(batch.num_rows)
    pieces = []
    order = []
    for condition, result in zip(conditions, results, strict=True):
        holds = _filled(pc.fill_null(condition(batch), False), batch)
        chosen = batch.filter(holds)
        pieces.append(_filled(result(chosen), chosen))
        flags = holds.to_numpy(zero_copy_only=False)
        order.append(rows[flags])
        batch, rows = batch.filter(pc.invert(holds)), rows[~flags]
    pieces.append(_filled(default(batch), batch))
    order.append(rows)
    return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(order))))


def _filled(value: Any, batch: pa.RecordBatch) -> pa.Array:
    return pa.repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value
