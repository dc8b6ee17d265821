"""Files as a source: the same rows at the same positions, or an error that says why not."""

import gzip
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewake.connectors.files import formats
from rewake.connectors.files.source import Files
from rewake.model.errors import (
    DamagedData,
    OutOfRange,
    ReplayMismatch,
    SchemaMismatch,
    UsageError,
)

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
FORMATS = ("parquet", "csv", "json")


def rows(start: int, stop: int) -> pa.Table:
    """Numbers, and texts with what is hard on a text format."""
    texts = [None if n % 7 == 0 else f'{n}, "so"' for n in range(start, stop)]
    return pa.table([pa.array(range(start, stop), pa.int64()), texts], schema=SCHEMA)


def write(path: Path, table: pa.Table, row_group_size: int = 5) -> None:
    if path.suffix == ".parquet":
        arrow_parquet.write_table(table, path, row_group_size=row_group_size)
    elif path.suffix == ".csv":
        arrow_csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def write_all(folder: Path, file_format: str, sizes: list[int]) -> pa.Table:
    start = 0
    for number, size in enumerate(sizes):
        write(folder / f"rows-{number:03d}.{file_format}", rows(start, start + size))
        start += size
    return rows(0, start)


@pytest.mark.parametrize("file_format", FORMATS)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None
)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 3))
def test_any_position_leads_to_the_same_cut(
    replayed: Callable, file_format: str, sizes: list[int], event_tuples: int, shards: int
) -> None:
    """Across files, row groups and empty files, in every shard."""
    with tempfile.TemporaryDirectory() as folder:
        table = write_all(Path(folder), file_format, sizes)
        source = Files(folder, file_format, event_tuples, SCHEMA)
        found = replayed(source, shards)
        assert pa.concat_tables(found).sort_by("n").equals(table)
        assert [each.num_rows for each in found] == [sum(sizes[k::shards]) for k in range(shards)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_text_is_read_in_blocks(
    tmp_path: Path, replayed: Callable, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    """Lines that lie across two blocks are whole."""
    monkeypatch.setattr(formats, "BLOCK_BYTES", 64)
    monkeypatch.setattr(formats, "PARQUET_ROWS", 3)
    table = write_all(tmp_path, file_format, [20, 0, 11])
    (found,) = replayed(Files(tmp_path, file_format, 4, SCHEMA), 1)
    assert found.equals(table)


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_columns_are_those_of_the_first_file_that_shows_them(
    tmp_path: Path, file_format: str
) -> None:
    """Empty files are fine."""
    write_all(tmp_path, file_format, [0, 12])
    if file_format != "parquet":
        (tmp_path / f"a-first.{file_format}").write_bytes(b"")
    assert Files(tmp_path, file_format).schema.equals(SCHEMA)


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_files_without_rows_do_not_show_their_columns(tmp_path: Path, file_format: str) -> None:
    """With a schema they are an empty stream."""
    (tmp_path / f"empty.{file_format}").write_bytes(b"")
    with pytest.raises(SchemaMismatch, match="give schema="):
        Files(tmp_path, file_format)
    reader = Files(tmp_path, file_format, schema=SCHEMA).open(0, 1)
    assert reader.read(0.0) is None
    assert reader.ended


@pytest.mark.parametrize(
    ("file_format", "text"), [("csv", "n,empty\n1,\n"), ("json", '{"e":null}')]
)
def test_a_column_without_values_does_not_show_its_type(
    tmp_path: Path, file_format: str, text: str
) -> None:
    """A guess would fail at the first value."""
    (tmp_path / f"a.{file_format}").write_text(text)
    with pytest.raises(SchemaMismatch, match="give schema="):
        Files(tmp_path, file_format)


def test_a_file_a_folder_or_a_pattern(tmp_path: Path, drained: Callable) -> None:
    """In the order of names; hidden files and other kinds of files are no data."""
    for name in ("b/2.csv", "b/1.csv", "a/9.csv", "a/_log.csv", "a/.hidden.csv", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"name\n{name}\n")

    def names(path: Path) -> list[str]:
        events = drained(Files(path, "csv").open(0, 1))
        return [row["name"] for event in events for row in event.batch.to_pylist()]

    assert names(tmp_path / "b" / "2.csv") == ["b/2.csv"]
    assert names(tmp_path / "b") == ["b/1.csv", "b/2.csv"]
    assert names(tmp_path / "*" / "*.csv") == ["a/9.csv", "b/1.csv", "b/2.csv"]
    assert names(tmp_path / "**" / "*.csv") == ["a/9.csv", "b/1.csv", "b/2.csv"]


def test_a_relative_path_is_the_same_file_in_another_current_folder(
    tmp_path: Path, drained: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes run elsewhere."""
    write_all(tmp_path, "parquet", [5])
    monkeypatch.chdir(tmp_path)
    source = Files("*.parquet")
    monkeypatch.chdir("/")
    assert sum(event.batch.num_rows for event in drained(source.open(0, 1))) == 5


def test_compressed_text_is_decompressed(tmp_path: Path, replayed: Callable) -> None:
    """By the ending of the name."""
    write_all(tmp_path, "json", [10])
    data = (tmp_path / "rows-000.json").read_bytes()
    (tmp_path / "rows-000.json").unlink()
    (tmp_path / "rows-000.json.gz").write_bytes(gzip.compress(data))
    (found,) = replayed(Files(tmp_path, "json", 4, SCHEMA), 1)
    assert found.equals(rows(0, 10))


def test_it_travels_and_describes_itself(tmp_path: Path, valued: Callable) -> None:
    """Where the files lie is not part of what they are; what they hold is."""
    for name in ("here", "there", "other"):
        (tmp_path / name).mkdir()
        write_all(tmp_path / name, "csv", [5, 6])
    write(tmp_path / "other" / "rows-000.csv", rows(10, 15))
    here, there, other = (Files(tmp_path / name, "csv") for name in ("here", "there", "other"))
    valued(here)
    assert [file["name"] for file in here.describe()["files"]] == ["rows-000.csv", "rows-001.csv"]
    assert here.describe() == there.describe() != other.describe()


def test_dictionaries_of_parquet_are_decoded(tmp_path: Path, drained: Callable) -> None:
    """Each file may have its own dictionary; the stream has one type."""
    for number, words in enumerate((["a", "b"], ["c", None])):
        table = pa.table({"word": pa.array(words).dictionary_encode()})
        arrow_parquet.write_table(table, tmp_path / f"{number}.parquet")
    source = Files(tmp_path, event_tuples=3)
    assert source.schema.equals(pa.schema([("word", pa.string())]), check_metadata=True)
    events = drained(source.open(0, 1))
    assert [event.batch["word"].to_pylist() for event in events] == [["a", "b", "c"], [None]]


def test_with_a_time_column_stream_events_carry_watermarks(
    tmp_path: Path, replayed: Callable, drained: Callable
) -> None:
    """The time of the last tuple, wherever reading began."""
    write_all(tmp_path, "parquet", [5, 6])
    source = Files(tmp_path, event_tuples=4, time_column="n")
    replayed(source, 1)
    assert [event.watermark for event in drained(source.open(0, 1))] == [3, 7, 10]


@pytest.mark.parametrize("file_format", FORMATS)
def test_times_that_go_back_are_refused(
    tmp_path: Path, drained: Callable, file_format: str
) -> None:
    """With the file and the row: within a file, and from one file to the next."""
    write(tmp_path / f"1.{file_format}", pa.concat_tables([rows(5, 9), rows(7, 9)]))
    with pytest.raises(UsageError, match=rf"1\.{file_format}, row 5: its 'n'"):
        drained(Files(tmp_path, file_format, 4, SCHEMA, "n").open(0, 1))
    write(tmp_path / f"1.{file_format}", rows(5, 9))
    write(tmp_path / f"2.{file_format}", rows(2, 4))
    with pytest.raises(UsageError, match=rf"2\.{file_format}, row 1: its 'n'"):
        drained(Files(tmp_path, file_format, 4, SCHEMA, "n").open(0, 1))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("change", ["content", "size", "gone"])
def test_a_file_that_has_changed_is_refused(
    tmp_path: Path, drained: Callable, file_format: str, change: str
) -> None:
    """What was computed from it could not be repeated; before and after it, all is well."""
    write_all(tmp_path, file_format, [4, 4, 4])
    source = Files(tmp_path, file_format, 4, SCHEMA)
    victim = tmp_path / f"rows-001.{file_format}"
    if change == "gone":
        victim.unlink()
    elif change == "size":
        write(victim, rows(4, 9))
    else:
        victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    reader = source.open(0, 1)
    assert reader.read(0.0).end == 4
    for _ in range(2):
        with pytest.raises(ReplayMismatch, match=r"rows-001.*restore the file"):
            reader.read(0.0)
        assert not reader.ended
    assert len(drained(source.open(0, 3))) == 1


@pytest.mark.parametrize(
    ("file_format", "line"),
    [
        ("csv", "seven,x"),
        ("csv", "7"),
        ("csv", "7,x,y"),
        ("json", '{"n": 7'),
        ("json", '{"n": "seven"}'),
        ("json", '{"n": 7.5}'),
        ("json", '{"n": 7, "more": 1}'),
        ("json", "[7]"),
    ],
)
@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_broken_line_is_named(
    tmp_path: Path, drained: Callable, monkeypatch, file_format: str, line: str, block: int
) -> None:
    """The file and the row; reading again does not get past it."""
    monkeypatch.setattr(formats, "BLOCK_BYTES", block)
    write_all(tmp_path, file_format, [5, 20])
    broken = tmp_path / f"rows-001.{file_format}"
    lines = broken.read_text().splitlines()
    lines.insert(-6, line)  # behind 14 rows
    broken.write_text("\n".join(lines))
    reader = Files(tmp_path, file_format, 4, SCHEMA).open(0, 1)
    for _ in range(2):
        with pytest.raises(DamagedData, match=rf"rows-001\.{file_format}, row 15: "):
            drained(reader)
        assert not reader.ended


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_a_file_with_other_columns_is_named(
    tmp_path: Path, drained: Callable, file_format: str
) -> None:
    """All files of a source have the same columns."""
    write(tmp_path / f"1.{file_format}", rows(0, 5))
    write(tmp_path / f"2.{file_format}", rows(0, 5).rename_columns(["n", "words"]))
    with pytest.raises(SchemaMismatch, match=rf"2\.{file_format} has .*words.*, but .*text"):
        drained(Files(tmp_path, file_format, 4, SCHEMA).open(0, 1))


def test_a_damaged_parquet_file_is_named(tmp_path: Path, drained: Callable) -> None:
    """Also when it was damaged before the query began."""
    write(tmp_path / "a.parquet", rows(0, 5))
    write(tmp_path / "b.parquet", rows(0, 1000))
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[4:2000] = bytes(1996)
    (tmp_path / "b.parquet").write_bytes(data)
    with pytest.raises(DamagedData, match=r"b\.parquet"):
        drained(Files(tmp_path).open(0, 1))
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(DamagedData, match=r"a\.parquet"):
        Files(tmp_path)


def test_no_files_and_no_such_format_are_refused(tmp_path: Path) -> None:
    """Before a query starts."""
    for path in (tmp_path, tmp_path / "missing.csv", tmp_path / "*.csv"):
        with pytest.raises(UsageError, match="there are no files at"):
            Files(path, "csv")
    write_all(tmp_path, "csv", [5])
    with pytest.raises(UsageError, match="parquet, csv, json"):
        Files(tmp_path, "xml")
    with pytest.raises(SchemaMismatch, match="time column"):
        Files(tmp_path, "csv", time_column="when")


def test_files_of_another_format_than_was_meant_are_told_by_their_names(tmp_path: Path) -> None:
    """Without `format` they are taken for Parquet; nobody has damaged them."""
    write_all(tmp_path, "csv", [5])
    name = next(tmp_path.glob("*.csv")).name
    for path in (tmp_path / "*.csv", tmp_path / name):
        with pytest.raises(UsageError, match=r'is no Parquet file, which .*; give format="csv"'):
            Files(path)
        with pytest.raises(UsageError, match=r'give format="csv"'):
            Files(path, schema=SCHEMA)
    with pytest.raises(UsageError, match=r'there are \.csv files: give format="csv"'):
        Files(tmp_path)
    (tmp_path / name).rename(tmp_path / "rows.dat")
    with pytest.raises(UsageError, match=r"say which it is with format=, one of parquet, csv"):
        Files(tmp_path / "*.dat")
    assert Files(tmp_path / "*.dat", "csv", schema=SCHEMA).entries
    write(tmp_path / "right.parquet", rows(0, 5))
    (tmp_path / "right.parquet").rename(tmp_path / "odd.csv")
    assert Files(tmp_path / "odd.csv").schema == SCHEMA, "the bytes count, not the name"


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_position_beyond_the_end_is_out_of_range(tmp_path: Path, file_format: str) -> None:
    """The source has become another one."""
    write_all(tmp_path, file_format, [5, 5])
    reader = Files(tmp_path, file_format, 4, SCHEMA).open(0, 1)
    for position in (11, 12, 13, 100):
        reader.seek(position)
        with pytest.raises(OutOfRange, match="ends at 10"):
            reader.read(0.0)


def test_row_groups_before_a_position_are_not_touched(tmp_path: Path) -> None:
    """Damage in them does not show."""
    path = tmp_path / "a.parquet"
    write(path, rows(0, 50_000), row_group_size=10_000)
    offset = arrow_parquet.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[70_000 : offset - 100] = bytes(offset - 100 - 70_000)
    path.write_bytes(data)
    assert os.path.getsize(path) > 4 * 65_536
    reader = Files(path, event_tuples=1000).open(0, 1)
    reader.seek(25_500)
    assert reader.read(0.0).batch["n"][0].as_py() == 25_000


def test_with_slack_rows_of_files_may_be_out_of_order(tmp_path):
    """Watermarks are that much behind the latest time of a stream event."""
    arrow_parquet.write_table(pa.table({"t": [5, 3, 9, 1]}), tmp_path / "a.parquet")
    reader = Files(tmp_path, event_tuples=2, time_column="t", slack=4).open(0, 1)
    assert [reader.read(0.0).watermark for _ in range(2)] == [1, 5]
