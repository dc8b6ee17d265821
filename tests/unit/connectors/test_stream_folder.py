"""Making a stream's folder, and reading it shard by shard."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import (
    PARTITIONS,
    ROWS,
    SCHEMA,
    batch,
    commit_numbers,
    new_stream,
)

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import create_stream, open_stream
from rewake.connectors.streams.source import StreamSource
from rewake.model.errors import (
    DamagedLog,
    LogExists,
    LogInUse,
    SchemaMismatch,
    UsageError,
)
from rewake.stores import LocalStore

# --- making streams ------------------------------------------------------------------------------


def test_a_stream_that_was_left_half_made_is_completed(tmp_path: Path) -> None:
    """Unless the attempt was one for other columns."""
    path = tmp_path / "stream"
    for name in ("one", "two"):
        made = new_stream(tmp_path / name)
        (made.path / "stream.json").unlink()
    stream = new_stream(tmp_path / "one")
    assert open_stream(tmp_path / "one") == stream
    with pytest.raises(LogExists, match="other columns"):
        create_stream(tmp_path / "two", pa.schema([("n", pa.string())]), shards=3)
    assert not path.exists()


def test_what_cannot_be_a_stream_is_refused(tmp_path: Path) -> None:
    """A stream that is there, one being made, a log, columns that are not there."""
    stream = new_stream(tmp_path / "stream")
    with pytest.raises(LogExists, match="stream already"):
        new_stream(stream.path)
    with pytest.raises(LogExists, match="a log by itself"):
        new_stream(stream.shards[0])
    with pytest.raises(SchemaMismatch, match="nowhere"):
        create_stream(tmp_path / "new", SCHEMA, key=["nowhere"])
    with pytest.raises(SchemaMismatch, match="nowhere"):
        create_stream(tmp_path / "new", SCHEMA, time="nowhere")
    with pytest.raises(UsageError, match="1 to 4096"):
        create_stream(tmp_path / "new", SCHEMA, shards=0)
    held = LocalStore(tmp_path / "new", create=True)
    assert held.try_lock()
    with pytest.raises(LogInUse, match="making a stream"):
        create_stream(tmp_path / "new", SCHEMA)
    held.close()


def test_a_stream_whose_manifest_was_deleted_is_not_made_again(
    committer: StreamCommit,
) -> None:
    """Another number of shards would leave rows behind; nobody is blamed who only writes."""
    path = committer.folder.path
    commit_numbers(committer, batch(0))
    manifest = (path / "stream.json").read_bytes()
    (path / "stream.json").unlink()
    for attempt in (
        lambda: open_stream(path),
        lambda: StreamSource(path),
        lambda: create_stream(path, SCHEMA, shards=3),
    ):
        with pytest.raises(DamagedLog, match=r"no stream\.json.*restore it from a copy"):
            attempt()
    (path / "stream.json").write_bytes(manifest)
    assert len(StreamSource(path).shards) == 3


# --- reading it ----------------------------------------------------------------------------------


def test_a_stream_is_read_in_as_many_shards_as_it_has(
    committer: StreamCommit, valued, drained
) -> None:
    """Each from a position of its own; the whole is a value that travels."""
    path = committer.folder.path
    commit_numbers(committer, batch(0))
    whole = StreamSource(path, follow=False)
    valued(whole)
    ends = [drained(whole.open(shard, 3))[-1].end for shard in range(3)]
    commit_numbers(committer, batch(1))
    rest = StreamSource(path, begin=ends, follow=False)
    valued(rest)
    assert rest.describe() != whole.describe()
    late = [event for shard in range(3) for event in drained(rest.open(shard, 3))]
    assert {number for event in late for number in event.batch["batch"].to_pylist()} == {1}
    assert sum(event.batch.num_rows for event in late) == PARTITIONS * ROWS
    assert StreamSource(path, begin="latest", follow=False).open(0, 3).read(0.0) is None
    with pytest.raises(UsageError, match=r"has 3 shards.*shards=3"):
        whole.open(0, 2)
    with pytest.raises(UsageError, match="a list of 3 positions"):
        StreamSource(path, begin=7)
    with pytest.raises(UsageError, match=r"shards \[0, 1\], and the stream has 3"):
        StreamSource(path, begin=[1, 2])
