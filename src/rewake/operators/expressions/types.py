"""Types of expressions: which SQL name is which Arrow type, and which types go together."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

_SQL_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINT": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
}


def arrow_type(target: exp.DataType) -> pa.DataType | None:
    """The Arrow type of an SQL type, or None when there is none."""
    name = str(getattr(target.this, "name", target.this))
    if name == "DECIMAL":
        numbers = [int(each.this.name) for each in target.expressions]
        precision, scale = [*numbers, *(18, 3)[len(numbers) :]] if numbers else (18, 3)
        return pa.decimal128(precision, scale)
    return _SQL_TYPES.get(name)


def is_text(kind: pa.DataType) -> bool:
    """Whether it is text of either width."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def common_type(
    kinds: Sequence[tuple[pa.DataType, bool]],
) -> tuple[pa.DataType | None, str]:
    """The one type of (type, is a literal) pairs, or None and the reason in words."""
    known = [(kind, literal) for kind, literal in kinds if not pa.types.is_null(kind)]
    types = [kind for kind, _ in known]
    if not types:
        return pa.null(), ""
    if all(_is_number(kind) for kind in types):
        return _common_number(types), ""
    if all(kind == types[0] for kind in types):
        return types[0], ""
    if all(is_text(kind) for kind in types):
        return pa.large_string(), ""
    # A literal in quotes stands for a date or a timestamp beside one.
    temporal = [kind for kind in types if pa.types.is_temporal(kind)]
    rest = [literal for kind, literal in known if not pa.types.is_temporal(kind)]
    if temporal and all(rest) and all(is_text(k) or pa.types.is_temporal(k) for k in types):
        kind = _common_time(temporal)
        if kind is not None:
            return kind, ""
    names = list(dict.fromkeys(str(kind) for kind in types))
    return None, f"types {' and '.join(names)} do not go together"


def _common_number(types: Sequence[pa.DataType]) -> pa.DataType:
    if all(pa.types.is_integer(kind) for kind in types):
        return pa.int64()
    if all(kind == types[0] for kind in types) and pa.types.is_decimal(types[0]):
        return types[0]
    return pa.float64()


def _common_time(types: Sequence[pa.DataType]) -> pa.DataType | None:
    if all(kind == types[0] for kind in types):
        return types[0]
    stamps = [kind for kind in types if pa.types.is_timestamp(kind)]
    if not stamps or any(kind.tz != stamps[0].tz for kind in stamps):
        return None
    if not all(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in types):
        return None
    units = ["s", "ms", "us", "ns"]
    return pa.timestamp(max((kind.unit for kind in stamps), key=units.index), stamps[0].tz)


def refuse_cast(source: pa.DataType, target: pa.DataType) -> str:
    """Why a cast is refused, or nothing.  Arrow would take any integer for a time in any unit."""
    if pa.types.is_temporal(source) != pa.types.is_temporal(target):
        other = target if pa.types.is_temporal(source) else source
        if not (is_text(other) or pa.types.is_null(other)):
            return (
                f"a CAST from {source} to {target} does not say the unit of time; "
                "use a Python function of the batch"
            )
    return ""


def cast_options(source: pa.DataType, target: pa.DataType) -> pc.CastOptions:
    """Safe, except that a time may lose what the target's unit does not have."""
    truncates = pa.types.is_temporal(source) and pa.types.is_temporal(target)
    floats = pa.types.is_floating(target)
    return pc.CastOptions(
        target, allow_time_truncate=truncates, allow_float_truncate=floats, allow_int_overflow=False
    )
