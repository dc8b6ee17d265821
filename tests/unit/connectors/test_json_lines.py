"""Rows as JSON lines: what Python and Arrow read is what was written."""

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.connectors.files.formats import FORMATS
from rewake.connectors.files.json_lines import check_text_schema, json_lines
from rewake.model.errors import SchemaMismatch

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | texts,
            st.none() | st.booleans(),
            st.none() | st.floats(),
        ),
        max_size=12,
    ),
    texts,
)
def test_every_value_comes_back(values: list[tuple], name: str) -> None:
    """Nulls, every character, also in names, and numbers that are none."""
    columns = list(zip(*values, strict=True)) if values else [()] * 4
    kinds = (pa.int64(), pa.string(), pa.bool_(), pa.float64())
    names = ["n", f"t{name}", "b", "f"]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    found = [json.loads(line) for line in json_lines(batch).decode().split("\n")[:-1]]
    assert json_lines(pa.Table.from_batches([batch])) == json_lines(batch)
    for row, expected in zip(found, batch.to_pylist(), strict=True):
        if expected["f"] is not None and math.isnan(expected["f"]):
            assert math.isnan(row.pop("f"))
            del expected["f"]
        assert row == expected


def test_times_dates_and_decimals_come_back_through_arrow(tmp_path: Path) -> None:
    """With the schema, which JSON itself does not have."""
    schema = pa.schema(
        [
            ("at", pa.timestamp("us")),
            ("zoned", pa.timestamp("ms", "UTC")),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("small", pa.float32()),
        ]
    )
    moment = datetime(2024, 2, 29, 12, 30, 1, 250_000)
    rows = [
        [moment, moment.replace(tzinfo=UTC), moment.date(), Decimal("12.30"), 0.1],
        [None] * 5,
    ]
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    lines = json_lines(batch)
    assert json.loads(lines.split(b"\n")[0])["at"] == "2024-02-29T12:30:01.250000"
    (tmp_path / "a.json").write_bytes(lines)
    ((_, found),) = FORMATS["json"].batches(tmp_path / "a.json", schema, 0)
    assert found.equals(batch)


def test_a_slice_is_written_alone() -> None:
    """Not the rows that share its memory."""
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3], "t": ["a", 'b"', "c"]})
    assert json_lines(batch.slice(1, 1)) == b'{"n":2,"t":"b\\""}\n'
    assert json_lines(batch.slice(0, 0)) == b""


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])])
def test_columns_without_a_plain_text_are_refused(kind: pa.DataType) -> None:
    """By name and type, before anything is written."""
    with pytest.raises(SchemaMismatch, match=f"column 'c' of type {kind}".replace("<", ".")):
        check_text_schema(pa.schema([("c", kind)]), "json")
