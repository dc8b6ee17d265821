"""Reading the rows of one Parquet, CSV or JSON file.

CSV: a header line, then comma-separated values; an empty field is null, `""` is the empty string.
JSON: one object per line; a missing field is null, one that the schema does not have is refused.
Compressed text (`.gz`, `.bz2`, `.zst`) is decompressed as it is read.

What always holds: a row that cannot be read raises `DamagedData` with the file and the row, and a
file with other columns raises `SchemaMismatch`; nothing is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as arrow_parquet

from rewake.connectors.cutting import bare_batch, bare_schema, schema_json
from rewake.model.errors import DamagedData, SchemaMismatch, StorageFault, UsageError

__all__ = ["FORMATS", "FileFormat", "checked_format"]

BLOCK_BYTES: Final = 4 << 20
PARQUET_ROWS: Final = 65_536
_ARROW_ERRORS: Final = (pa.ArrowException, ValueError)
_CSV_ROW: Final = re.compile(r"Row #(\d+): ")


# (number of the first row, rows)
Numbered: TypeAlias = tuple[int, pa.RecordBatch]


class FileFormat(NamedTuple):
    """How the files of one format are read.

    `rows` tells their number if that is cheap.  `batches` gives the rows, from `row` or, where it
    costs the same, from before it.
    """

    endings: tuple[str, ...]
    schema: Callable[[Path], pa.Schema | None]
    rows: Callable[[Path], int | None]
    batches: Callable[[Path, pa.Schema, int], Iterator[Numbered]]


def checked_format(name: str) -> FileFormat:
    """The format of that name."""
    if name not in FORMATS:
        raise UsageError(f"no file format {name!r}; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Turn what the readers raise into errors that name the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        # Arrow reports damaged compressed data and Parquet pages as OSError without a number.
        if error.errno is None:
            raise DamagedData(f"{path} cannot be read: {error}; restore the file") from error
        raise StorageFault(
            f"cannot read {path}: {error.strerror}; check the file and its permissions"
        ) from error
    except _ARROW_ERRORS as error:
        raise DamagedData(f"{path} cannot be read: {error}; restore the file") from error


# --- Parquet -------------------------------------------------------------------------------------


def _parquet_schema(path: Path) -> pa.Schema:
    with _reporting(path):
        return bare_schema(arrow_parquet.read_schema(path))


def _parquet_rows(path: Path) -> int:
    with _reporting(path):
        return int(arrow_parquet.read_metadata(path).num_rows)


def _parquet_batches(path: Path, schema: pa.Schema, row: int) -> Iterator[Numbered]:
    """The rows from the row group that holds `row` on."""
    with _reporting(path), arrow_parquet.ParquetFile(path) as file:
        check_columns(path, bare_schema(file.schema_arrow), schema)
        group, first = 0, 0
        while group < file.num_row_groups:
            rows = file.metadata.row_group(group).num_rows
            if first + rows > row:
                break
            first += rows
            group += 1
        groups = range(group, file.num_row_groups)
        for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, use_threads=False):
            yield first, bare_batch(batch, schema)
            first += batch.num_rows


# --- CSV -----------------------------------------------------------------------------------------

_CSV_PARSE: Final = arrow_csv.ParseOptions(newlines_in_values=True)


def _csv_convert(schema: pa.Schema | None) -> arrow_csv.ConvertOptions:
    return arrow_csv.ConvertOptions(
        column_types=schema,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _open_csv(path: Path, schema: pa.Schema | None) -> arrow_csv.CSVStreamingReader | None:
    """The open file, or None when there is not even a header."""
    read = arrow_csv.ReadOptions(block_size=BLOCK_BYTES)
    try:
        return arrow_csv.open_csv(path, read, _CSV_PARSE, _csv_convert(schema))
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return None
        raise _bad_csv(path, schema, 0, error) from error


def _csv_schema(path: Path) -> pa.Schema | None:
    """The columns as the first rows suggest them; None when there are no rows."""
    with _reporting(path):
        reader = _open_csv(path, None)
        if reader is None:
            return None
        with reader:
            first = next(iter(reader), None)
        return None if first is None or not first.num_rows else _certain(path, first.schema)


def _csv_batches(path: Path, schema: pa.Schema, _row: int) -> Iterator[Numbered]:
    with _reporting(path):
        reader = _open_csv(path, schema)
        if reader is None:
            return
        with reader:
            check_columns(path, bare_schema(reader.schema), schema)
            done = 0
            while True:
                try:
                    batch = next(reader, None)
                except pa.ArrowInvalid as error:
                    raise _bad_csv(path, schema, done, error) from error
                if batch is None:
                    return
                yield done, bare_batch(batch, schema)
                done += batch.num_rows


def _bad_csv(path: Path, schema: pa.Schema | None, done: int, error: Exception) -> DamagedData:
    """Say which row it is: reading in one go can tell, reading by and by cannot."""
    read = arrow_csv.ReadOptions(
        use_threads=False, block_size=BLOCK_BYTES, skip_rows_after_names=done
    )
    said = str(error)
    try:
        arrow_csv.read_csv(path, read, _CSV_PARSE, _csv_convert(schema))
    except pa.ArrowInvalid as again:
        said = str(again)
    found = _CSV_ROW.search(said)
    # Arrow counts the header as row 1.
    where = f"row {int(found[1]) - 1}" if found else f"a row after row {done}"
    return _bad_row(path, where, _CSV_ROW.sub("", said))


# --- JSON ----------------------------------------------------------------------------------------


def _json_schema(path: Path) -> pa.Schema | None:
    """The columns as the first rows suggest them; None when there are no rows."""
    with _reporting(path):
        for block in _line_blocks(path):
            table = _parse_json(path, block, None, 0)
            if table.num_rows:
                return _certain(path, table.schema)
    return None


def _json_batches(path: Path, schema: pa.Schema, _row: int) -> Iterator[Numbered]:
    done = 0
    with _reporting(path):
        for block in _line_blocks(path):
            for batch in _parse_json(path, block, schema, done).to_batches():
                yield done, batch
                done += batch.num_rows


def _line_blocks(path: Path) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    rest = b""
    with pa.input_stream(path, compression="detect") as stream:
        while data := stream.read(BLOCK_BYTES):
            lines, newline, tail = data.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = tail
            else:
                rest += data
    if rest:
        yield rest


def _parse_json(path: Path, block: bytes, schema: pa.Schema | None, done: int) -> pa.Table:
    try:
        return _json_table(block, schema)
    except _ARROW_ERRORS as error:
        for number, line in enumerate(filter(bytes.strip, block.split(b"\n")), done + 1):
            try:
                _json_table(line, schema)
            except _ARROW_ERRORS as bad:
                raise _bad_row(path, f"row {number}", str(bad)) from bad
        # Each line is right by itself: a field is of one type here and of another there.
        raise _bad_row(path, f"a row after row {done}", str(error)) from error


def _json_table(block: bytes, schema: pa.Schema | None) -> pa.Table:
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    if schema is None:
        table = arrow_json.read_json(pa.BufferReader(block), read)
    else:
        parse = arrow_json.ParseOptions(
            explicit_schema=_json_types(schema), unexpected_field_behavior="error"
        )
        table = arrow_json.read_json(pa.BufferReader(block), read, parse)
        table = table.select(schema.names).cast(schema)
    table.validate(full=True)
    return table


def _json_types(schema: pa.Schema) -> pa.Schema:
    """Arrow's JSON reader takes dates and times for numbers; as texts they can be converted."""
    return pa.schema(
        [
            pa.field(each.name, pa.string())
            if pa.types.is_date(each.type) or pa.types.is_time(each.type)
            else each
            for each in schema
        ]
    )


# --- what is refused -----------------------------------------------------------------------------


def check_columns(path: Path, found: pa.Schema, schema: pa.Schema) -> None:
    """Refuse a file with other columns."""
    if found.names != schema.names or found.types != schema.types:
        raise SchemaMismatch(
            f"{path} has the columns {_named(found)}, but the source has {_named(schema)}; give "
            "only files with the same columns in the same order"
        )


def _named(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in schema_json(schema)) + ")"


def _certain(path: Path, schema: pa.Schema) -> pa.Schema:
    unknown = [each.name for each in schema if pa.types.is_null(each.type)]
    if unknown:
        raise SchemaMismatch(
            f"the first rows of {path} do not show the type of {', '.join(unknown)}; give schema="
        )
    return bare_schema(schema)


def _bad_row(path: Path, where: str, said: str) -> DamagedData:
    return DamagedData(
        f"{path}, {where}: {said}; correct the file before a query uses it, or give schema= if the "
        "types were guessed wrong"
    )


FORMATS: Final = {
    "parquet": FileFormat((".parquet",), _parquet_schema, _parquet_rows, _parquet_batches),
    "csv": FileFormat((".csv",), _csv_schema, lambda _path: None, _csv_batches),
    "json": FileFormat(
        (".json", ".jsonl", ".ndjson"), _json_schema, lambda _path: None, _json_batches
    ),
}
