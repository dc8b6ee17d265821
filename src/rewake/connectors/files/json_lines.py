"""Rows as JSON lines, column by column: no Python per row.

Each column becomes an array of texts, the arrays are joined element by element, and the bytes of
the joined array are the lines.  Not-a-number and infinities are written as `NaN`, `Infinity` and
`-Infinity`, which Arrow, Spark and Python read, though the standard does not know them.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import SchemaMismatch

__all__ = ["check_text_schema", "json_lines"]

_TEXT: Final = pa.large_string()
# The backslash comes first: the others bring new ones.
_SHORT_ESCAPES: Final = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
)
_ESCAPES: Final = _SHORT_ESCAPES + tuple(
    (chr(code), f"\\u{code:04x}") for code in range(32) if chr(code) not in "\n\r\t"
)
_SPECIAL: Final = r'[\x00-\x1f"\\]'


def json_lines(rows: pa.RecordBatch | pa.Table) -> bytes:
    """One JSON object per row, each on its line, with all columns in order."""
    return b"".join(_lines(batch) for batch in _batches(rows))


def check_text_schema(schema: pa.Schema, text_format: str) -> None:
    """Refuse columns that have no plain text form."""
    if not schema.names:
        raise SchemaMismatch(f"a stream without columns cannot be written as {text_format}")
    for each in schema:
        if not _has_text(each.type):
            raise SchemaMismatch(
                f"column {each.name!r} of type {each.type} cannot be written as {text_format}; "
                "write Parquet, or convert the column before"
            )


def _has_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        fits(kind)
        for fits in (
            types.is_boolean,
            types.is_integer,
            types.is_floating,
            types.is_decimal,
            types.is_string,
            types.is_large_string,
            types.is_timestamp,
            types.is_date,
            types.is_time,
        )
    )


def _batches(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()


def _lines(batch: pa.RecordBatch) -> bytes:
    if not batch.num_rows:
        return b""
    pieces: list[pa.Array | pa.Scalar] = []
    before = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces.append(pa.scalar(f"{before}{json.dumps(name)}:", _TEXT))
        pieces.append(_text(column).fill_null("null"))
        before = ","
    joined = pc.binary_join_element_wise(*pieces, pa.scalar("}\n", _TEXT), pa.scalar("", _TEXT))
    # The values of a text array lie one behind the other: they are the lines already.
    lines: bytes = joined.buffers()[2].to_pybytes()
    return lines


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(column.cast(_TEXT)))
    if pa.types.is_floating(kind):
        return _float_text(column.cast(pa.float64()) if kind.bit_width == 16 else column)
    text = column.cast(pa.string()).cast(_TEXT)
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(text, " ", "T", max_replacements=1))
    # A decimal as a number would be read as a float.
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind):
        return _quoted(text)
    return text


def _quoted(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"', _TEXT)
    return pc.binary_join_element_wise(quote, text, quote, pa.scalar("", _TEXT))


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _SPECIAL)).as_py():
        return text
    for character, escape in _ESCAPES:
        text = pc.replace_substring(text, character, escape)
    return text


def _float_text(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string()).cast(_TEXT)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return text
    values = np.nan_to_num(column.to_numpy(zero_copy_only=False), nan=0.0)
    infinite = pc.if_else(pa.array(values < 0), "-Infinity", "Infinity").cast(_TEXT)
    odd = pc.if_else(pc.is_nan(column), pa.scalar("NaN", _TEXT), infinite)
    return pc.if_else(pc.is_finite(column), text, odd)
