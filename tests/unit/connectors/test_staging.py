"""What a task stages: bounded parts of a durable file, with their time."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import (
    ROWS,
    batch,
    commit_numbers,
    frames,
    layout_of,
    rows,
    staged,
)

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import StreamFolder, create_stream, stream_columns
from rewake.connectors.streams.source import StreamSource
from rewake.model.errors import (
    UsageError,
)
from rewake.model.stream_event import NO_TIME
from rewake.spark.datasource import staging

# --- staged rows ---------------------------------------------------------------------------------


def test_parts_are_bounded_whatever_the_rows_are(tmp_path: Path) -> None:
    """Rows of any size, in batches of any size; in their order."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    stream = create_stream(tmp_path / "stream", schema)
    sizes = [1] * 1000 + [3 << 20, 9 << 20, 100] + [50_000] * 300
    large = pa.RecordBatch.from_arrays(
        [pa.array(range(len(sizes))), pa.array(["x" * size for size in sizes])], schema=schema
    )
    small = large.slice(0, 10)
    files = staging.stage(layout_of(stream), batch(0), 0, [small, large, large.slice(0, 0), small])
    (file,) = files
    assert file.rows == len(sizes) + 20
    assert all(part.size <= 10 << 20 for part in file.parts)
    assert len(file.parts) >= 5
    committer = StreamCommit(stream)
    committer.commit(batch(0), files)
    committer.close()
    reader = StreamSource(stream.path, follow=False).open(0, 1)
    found: list[int] = []
    while (event := reader.read(0.0)) is not None:
        found += event.batch["n"].to_pylist()
    reader.close()
    assert found == [*range(10), *range(len(sizes)), *range(10)]


def test_a_row_that_no_frame_can_hold_is_refused(
    stream: StreamFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its size, and nothing staged."""
    monkeypatch.setattr(staging, "LARGEST_PART", 10)
    with pytest.raises(UsageError, match="one row has 16 bytes"):
        staging.stage(layout_of(stream), batch(0), 0, [rows(0, count=1)])
    assert staged(stream) == set()


def test_many_small_batches_become_few_frames(stream: StreamFolder) -> None:
    """A frame should be worth its header."""
    batches = [rows(0, start, 100) for start in range(0, 100_000, 100)]
    (file,) = staging.stage(layout_of(stream), batch(0), 0, batches)
    assert file.rows == 100_000
    assert len(file.parts) == 3


def test_a_staged_file_is_an_arrow_stream(stream: StreamFolder) -> None:
    """Any tool can look into it."""
    (file,) = staging.stage(layout_of(stream), batch(0), 0, [rows(0)])
    with pa.memory_map(str(stream.path / "staging" / file.name)) as source:
        table = pa.ipc.open_stream(source).read_all()
    assert sorted(table["n"].to_pylist()) == list(range(ROWS))


def test_the_time_of_a_frame_is_the_latest_so_far(tmp_path: Path) -> None:
    """Of all rows of its shard; rows without a time do not count."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    stream = create_stream(tmp_path / "stream", schema, time="at")
    assert stream_columns(stream) == (schema, "at")
    committer = StreamCommit(stream)
    for number, times in enumerate([[5, 30, None], [None], [20], [40]]):
        column = pa.array(times, schema.field("at").type)
        late = pa.RecordBatch.from_arrays([column], schema=schema)
        identity = batch(number)
        committer.commit(identity, staging.stage(layout_of(stream), identity, 0, [late]))
    committer.close()
    with_rows = [frame.timestamp for frame in frames(stream.shards[0]) if frame.tuples]
    assert with_rows == [30, 30, 30, 40]
    again = StreamCommit(stream)
    again.commit(batch(4), [])
    again.close()
    assert frames(stream.shards[0])[-1].timestamp == 40


def test_without_a_time_column_there_is_no_time(committer: StreamCommit) -> None:
    """The clock has not started."""
    commit_numbers(committer, batch(0))
    for shard in committer.folder.shards:
        assert {frame.timestamp for frame in frames(shard)} == {NO_TIME}
    assert stream_columns(committer.folder)[1] is None
