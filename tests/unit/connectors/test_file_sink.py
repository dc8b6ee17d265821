"""Files as the end of a stream: what is committed is there once, and nothing else is."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as arrow_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewake.connectors.files.parts import PartStretch, chains, read_parts, stretch_of
from rewake.connectors.files.sink import FileSink
from rewake.connectors.files.source import Files
from rewake.model.errors import (
    DamagedData,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import StreamEvent

SCHEMA = pa.schema([("n", pa.int64())])
FORMATS = ("parquet", "csv", "json")


def event(start: int, end: int, rows: int | None = None) -> StreamEvent:
    """The stretch from start to end; its tuples, at the last positions, hold their position."""
    rows = end - start if rows is None else rows
    numbers = pa.array(range(end - rows, end), pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers], schema=SCHEMA)
    return StreamEvent(end - rows, batch, None, start)


def numbers(folder: Path) -> list[int]:
    return read_parts(folder)["n"].to_pylist()


def visible(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.startswith((".", "_")))


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_commit_makes_one_file_per_channel(tmp_path: Path, file_format: str) -> None:
    """Named for its positions; before the commit nothing is to be seen."""
    writer = FileSink(tmp_path / "out", file_format).open(0, 1, SCHEMA)
    for start in range(0, 30, 10):
        writer.write(0, event(start, start + 10))
    writer.write(3, event(0, 5))
    assert visible(tmp_path / "out") == []
    assert (writer.position(0), writer.position(3)) == (0, 0)
    writer.commit()
    assert (writer.position(0), writer.position(3)) == (30, 5)
    assert visible(tmp_path / "out") == [
        f"part-00000-{0:020d}-{30:020d}.{file_format}",
        f"part-00003-{0:020d}-{5:020d}.{file_format}",
    ]
    writer.commit()
    writer.close()
    writer.close()
    assert len(visible(tmp_path / "out")) == 2
    assert numbers(tmp_path / "out") == [*range(30), *range(5)]
    assert sorted(os.listdir(tmp_path / "out"))[0] == "_rewake.json"


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_type_that_has_a_text_comes_back(tmp_path: Path, file_format: str) -> None:
    """Through every format."""
    table = pa.table(
        {
            "i": pa.array([1, None, -(2**63)], pa.int64()),
            "f": pa.array([0.1, float("inf"), None], pa.float64()),
            "t": pa.array(['a "b",\nc', "", None]),
            "b": pa.array([True, None, False]),
            "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6), None, None], pa.timestamp("us")),
            "day": pa.array([19_000, None, 0], pa.date32()),
        }
    )
    writer = FileSink(tmp_path, file_format).open(0, 1, table.schema)
    writer.write(0, StreamEvent(0, table.to_batches()[0]))
    writer.commit()
    writer.close()
    assert read_parts(tmp_path).equals(table)


def test_a_successor_goes_on_where_the_commits_end(tmp_path: Path) -> None:
    """What was written and not committed is written again; what was committed is left out."""
    sink = FileSink(tmp_path)
    for last in range(3):
        writer = sink.open(0, 1, SCHEMA)
        assert writer.position(0) == last * 15
        # The upstream may begin before the position, in the middle of a stream event.
        for start in range(0, (last + 1) * 20, 4):
            if start + 4 > writer.position(0) - 7:
                end = min(start + 4, (last + 1) * 15)
                if end > start:
                    writer.write(0, event(start, end))
        writer.commit()
        writer.write(0, event((last + 1) * 15, (last + 1) * 15 + 100))
        writer.close()
    assert numbers(tmp_path) == list(range(45))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from("cr.")), max_size=20)
)
def test_stretches_without_tuples_are_committed_too(tmp_path_factory, steps: list[tuple]) -> None:
    """A position never goes back, and files without tuples do not pile up."""
    folder = tmp_path_factory.mktemp("sink")
    sink = FileSink(folder)
    writer, at, expected, committed, sure = sink.open(0, 1, SCHEMA), 0, [], 0, 0
    for before, rows, then in steps:
        writer.write(0, event(at, at + before + rows, rows))
        expected += range(at + before, at + before + rows)
        at += before + rows
        if then in "cr":
            writer.commit()
            committed, sure = at, len(expected)
        if then == "r":
            writer.close()
            writer = sink.open(0, 1, SCHEMA)
        assert writer.position(0) == committed
    writer.close()
    assert numbers(folder) == expected[:sure]
    bare = [name for name in os.listdir(folder) if name.startswith("_covered")]
    assert len(bare) <= len(visible(folder)) + 1


def test_shards_write_to_folders_of_their_own(tmp_path: Path) -> None:
    """And are read back together."""
    writers = [FileSink(tmp_path).open(shard, 3, SCHEMA) for shard in range(3)]
    for shard, writer in enumerate(writers[:2]):
        writer.write(0, event(0, shard + 1))
        writer.commit()
        writer.close()
    writers[2].close()
    assert visible(tmp_path) == ["shard-0", "shard-1", "shard-2"]
    assert numbers(tmp_path) == [0, 0, 1]


def test_what_a_sink_has_written_is_a_source(tmp_path: Path, drained: Callable) -> None:
    """Names sort as positions do, and what is not data is hidden."""
    writer = FileSink(tmp_path).open(0, 1, SCHEMA)
    for start in range(0, 120, 10):
        writer.write(0, event(start, start + 10, 0 if start == 50 else None))
        writer.commit()
    writer.close()
    events = drained(Files(tmp_path, event_tuples=50).open(0, 1))
    assert [event.batch.num_rows for event in events] == [50, 50, 10]
    assert arrow_parquet.read_table(tmp_path).num_rows == 110


def test_it_travels_and_describes_itself(tmp_path: Path, valued: Callable) -> None:
    """As a part of a query it is compared, stored and sent."""
    valued(FileSink(tmp_path, "csv"))


# --- what is refused -----------------------------------------------------------------------------


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """Nothing in it is touched."""
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        FileSink(tmp_path).open(0, 1, SCHEMA)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_the_folder_of_another_sink_is_refused(tmp_path: Path) -> None:
    """Another format, number of shards, or other columns."""
    FileSink(tmp_path).open(0, 1, SCHEMA).close()
    FileSink(tmp_path).open(0, 1, SCHEMA).close()
    for sink, shards, schema, what in (
        (FileSink(tmp_path, "csv"), 1, SCHEMA, "format"),
        (FileSink(tmp_path), 2, SCHEMA, "shards"),
        (FileSink(tmp_path), 1, pa.schema([("m", pa.int64())]), "columns"),
    ):
        with pytest.raises(UsageError, match=f"its {what} is"):
            sink.open(0, shards, schema)


@pytest.mark.parametrize(
    ("victim", "said"), [(0, "positions 0 to 9 are"), (1, "positions 10 to 19 are")]
)
def test_a_missing_file_is_named(tmp_path: Path, victim: int, said: str) -> None:
    """When the sink is opened, and when it is read."""
    writer = FileSink(tmp_path).open(0, 1, SCHEMA)
    for start in range(0, 30, 10):
        writer.write(0, event(start, start + 10))
        writer.commit()
    writer.close()
    (tmp_path / visible(tmp_path)[victim]).unlink()
    for use in (lambda: FileSink(tmp_path).open(0, 1, SCHEMA), lambda: read_parts(tmp_path)):
        with pytest.raises(DamagedData, match=said):
            use()


def test_files_that_overlap_are_named(tmp_path: Path) -> None:
    """One of them does not belong there."""
    writer = FileSink(tmp_path).open(0, 1, SCHEMA)
    writer.write(0, event(0, 10))
    writer.commit()
    writer.close()
    foreign = PartStretch(0, 5, 20, True).name("parquet")
    (tmp_path / foreign).write_bytes(b"")
    with pytest.raises(DamagedData, match="from 0 to 10 and from 5 to 20 overlap"):
        FileSink(tmp_path).open(0, 1, SCHEMA)


def test_a_longer_bare_stretch_replaces_a_shorter_one() -> None:
    """A predecessor died between the two steps of prolonging it."""
    names = [PartStretch(0, 0, end, False).name("csv") for end in (5, 9, 7)]
    names += [PartStretch(0, 9, 12, True).name("csv"), "_SUCCESS", "part-of-something-else.csv"]
    found, replaced = chains(names, "here")
    assert found == {0: [PartStretch(0, 0, 9, False), PartStretch(0, 9, 12, True)]}
    assert replaced == [PartStretch(0, 0, 7, False), PartStretch(0, 0, 5, False)]
    assert [stretch_of(each.name("csv")) for each in found[0]] == found[0]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="parquet, csv, json"):
        FileSink(tmp_path, "xml")
    with pytest.raises(UsageError):
        FileSink(tmp_path).open(1, 1, SCHEMA)
    with pytest.raises(SchemaMismatch, match="cannot be written as csv"):
        FileSink(tmp_path, "csv").open(0, 1, pa.schema([("l", pa.list_(pa.int8()))]))
    with pytest.raises(UsageError, match="no _rewake"):
        read_parts(tmp_path)
    writer = FileSink(tmp_path).open(0, 1, SCHEMA)
    with pytest.raises(SchemaMismatch):
        writer.write(0, StreamEvent(0, pa.RecordBatch.from_pydict({"m": [1]})))
    with pytest.raises(AssertionError, match="goes on at 0"):
        writer.write(0, event(5, 10))
    writer.close()
    (tmp_path / "_rewake.json").write_text("{")
    with pytest.raises(DamagedData, match="no JSON"):
        read_parts(tmp_path)
