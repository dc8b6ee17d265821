"""Batches into a stream: every row once, whoever dies, repeats, sleeps or meddles."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import (
    OTHER,
    PARTITIONS,
    QUERY,
    ROWS,
    SCHEMA,
    commit_numbers,
    content,
    expected,
    layout_of,
    new_stream,
    rows,
    stage_numbers,
)

from rewake.connectors.log_stream import StreamSource
from rewake.connectors.stream_commit import StreamCommit
from rewake.connectors.stream_folder import StreamFolder, create_stream, open_stream, stream_columns
from rewake.connectors.stream_manifest import BatchPart, Manifest, StagedFile, Writers
from rewake.log.frame import SectionKind, TurnRecord
from rewake.model.errors import (
    CheckpointWithoutLog,
    DamagedFrame,
    DamagedLog,
    Fenced,
    LogBehindCheckpoint,
    LogExists,
    LogInUse,
    OtherQuery,
    RewakeError,
    SchemaMismatch,
    UsageError,
)
from rewake.model.stream_event import NO_TIME
from rewake.node.shard_batches import BatchIdentity
from rewake.operators.shuffle import Shuffle
from rewake.spark.datasource import staging
from rewake.stores import LocalStore, open_log_reader, open_log_writer

# Every point of a commit, and how often it may be passed before the process dies.
POINTS = [
    ("locked", 1),
    ("claimed", 1),
    ("settled", 1),
    ("verified", 1),
    ("published", 1),
    ("appended", 1),
    ("appended", 2),
    ("appended", 4),
    ("appended", 6),
    ("durable", 1),
    ("concluded", 1),
    ("cleared", 1),
    ("swept", 1),
]
CHILD = str(Path(__file__).with_name("commit_child.py"))


def batch(number: int, query: bytes = QUERY) -> BatchIdentity:
    return BatchIdentity(query, number)


@pytest.fixture
def stream(tmp_path: Path) -> StreamFolder:
    return new_stream(tmp_path / "stream")


@pytest.fixture
def committer(stream: StreamFolder) -> Iterator[StreamCommit]:
    made = StreamCommit(stream, patience_seconds=0.0)
    yield made
    made.close()


@pytest.fixture
def plain_stream(tmp_path: Path) -> StreamFolder:
    """Without a key: processes that write it need not load the shuffle."""
    return new_stream(tmp_path / "stream", key=None)


def staged(stream: StreamFolder) -> set[str]:
    folder = stream.path / "staging"
    return {name for name in os.listdir(folder) if name.startswith(("stage-", "commit-"))}


def frames(shard: Path) -> list:
    with open_log_reader(shard) as reader:
        return list(reader.frames())


# --- what is in the stream -----------------------------------------------------------------------


def test_every_row_of_every_batch_is_there_once(committer: StreamCommit) -> None:
    """And nothing is left in the staging folder."""
    for number in range(4):
        assert commit_numbers(committer, batch(number))
    assert content(committer.folder.path) == expected(0, 1, 2, 3)
    assert staged(committer.folder) == set()


def test_rows_are_in_the_shard_that_the_engine_gives_their_key(committer: StreamCommit) -> None:
    """A query with as many shards reads what is its."""
    commit_numbers(committer, batch(0))
    source = StreamSource(committer.folder.path, follow=False)
    shuffle = Shuffle(SCHEMA, ["n"], 3)
    for shard in range(3):
        event = source.open(shard, 3).read(0.0)
        assert event is not None
        assert set(shuffle.part_numbers(event.batch)) == {shard}


def test_without_a_key_a_partition_goes_to_one_shard(tmp_path: Path) -> None:
    """To that of its number modulo the shards."""
    stream = new_stream(tmp_path / "stream", shards=2, key=None)
    files = [
        file
        for partition in range(5)
        for file in staging.stage(layout_of(stream), batch(0), partition, [rows(partition)])
    ]
    committer = StreamCommit(stream)
    committer.commit(batch(0), list(reversed(files)))
    committer.close()
    source = StreamSource(stream.path, follow=False)
    for shard, partitions in ((0, [0, 2, 4]), (1, [1, 3])):
        reader = source.open(shard, 2)
        found = [reader.read(0.0).batch["batch"][0].as_py() for _ in partitions]
        assert found == partitions
        reader.close()


def test_frames_say_which_part_of_which_batch_they_are(committer: StreamCommit) -> None:
    """Parts are counted in each shard; a frame without tuples in shard 0 ends the commit."""
    commit_numbers(committer, batch(0))
    commit_numbers(committer, batch(1))
    for shard, path in enumerate(committer.folder.shards):
        marks = [BatchPart.decode(frame.section(SectionKind.BATCH)) for frame in frames(path)]
        for number in (0, 1):
            mine = [mark for mark in marks if mark.identity == batch(number)]
            parts = len(mine) - (shard == 0)
            assert [(mark.part, mark.parts) for mark in mine] == [
                (part, parts) for part in range(len(mine))
            ]
    last = frames(committer.folder.shards[0])[-1]
    assert last.tuples == 0
    stored = json.loads(bytes(last.section(SectionKind.METADATA)))
    assert Writers.from_json(stored) == Writers(QUERY, {QUERY: 1})


def test_a_batch_without_rows_counts(committer: StreamCommit) -> None:
    """The next one follows it."""
    assert committer.commit(batch(0), [])
    assert not committer.commit(batch(0), [])
    assert commit_numbers(committer, batch(1))
    assert content(committer.folder.path) == expected(1)


def test_an_instance_that_goes_on_begins_no_new_segments(committer: StreamCommit) -> None:
    """Its claims are still there, so nobody else has written."""
    for number in range(5):
        commit_numbers(committer, batch(number))
    for shard in committer.folder.shards:
        assert len(list(shard.glob("segment-*.log"))) == 1


def test_two_instances_take_turns(stream: StreamFolder) -> None:
    """Each finds what the other has written meanwhile."""
    one, two = (StreamCommit(stream, patience_seconds=0.0) for _ in range(2))
    for number in range(6):
        assert commit_numbers((one, two)[number % 2], batch(number))
        assert not commit_numbers((two, one)[number % 2], batch(number))
    assert content(stream.path) == expected(*range(6))
    one.close()
    two.close()


def test_a_stream_that_was_removed_and_made_again_is_another_one(
    committer: StreamCommit, tmp_path: Path
) -> None:
    """An instance that had it open notices."""
    commit_numbers(committer, batch(0))
    committer.folder.path.rename(tmp_path / "old")
    new_stream(committer.folder.path)
    assert commit_numbers(committer, batch(0))
    assert content(committer.folder.path) == expected(0)


# --- repeats and refusals ------------------------------------------------------------------------


def test_a_commit_repeated_a_thousand_times_is_one(
    committer: StreamCommit, stream: StreamFolder
) -> None:
    """By the one who made it and by others."""
    for number in range(3):
        commit_numbers(committer, batch(number))
    sizes = [path.stat().st_size for path in sorted(stream.path.rglob("segment-*.log"))]
    other = StreamCommit(stream, patience_seconds=0.0)
    files = stage_numbers(stream, batch(2))
    for each in (committer, other):
        for number in range(500):
            assert not each.commit(batch(number % 3), files)
    other.close()
    assert staged(stream) == set()
    assert sizes == [path.stat().st_size for path in sorted(stream.path.rglob("segment-*.log"))]
    assert content(stream.path) == expected(0, 1, 2)


def test_another_query_is_refused_unless_it_takes_over(
    committer: StreamCommit, stream: StreamFolder
) -> None:
    """A lost checkpoint gives a query another id; then the first one is the stranger."""
    commit_numbers(committer, batch(0))
    commit_numbers(committer, batch(1))
    before = staged(stream)
    newcomer = StreamCommit(stream, patience_seconds=0.0)
    with pytest.raises(OtherQuery, match=r"checkpoint lost.*takeover=true"):
        newcomer.commit(batch(0, OTHER), [])
    assert staged(stream) == before
    assert newcomer.commit(batch(0, OTHER), [], takeover=True)
    assert newcomer.commit(batch(1, OTHER), stage_numbers(stream, batch(1, OTHER), 7))
    with pytest.raises(OtherQuery):
        committer.commit(batch(2), [])
    assert not committer.commit(batch(1), [])  # it was there before
    assert not committer.commit(batch(1), [], takeover=True)
    newcomer.close()
    assert content(stream.path) == expected(0, 1, 7)


def test_a_gap_is_refused_unless_it_is_allowed(committer: StreamCommit) -> None:
    """The stream may be an older copy than Spark's checkpoint."""
    with pytest.raises(CheckpointWithoutLog, match="goes on with batch 3"):
        committer.commit(batch(3), [])
    commit_numbers(committer, batch(0))
    with pytest.raises(LogBehindCheckpoint, match="last batch is 0"):
        committer.commit(batch(2), [])
    assert commit_numbers(committer, batch(2), allow_gaps=True)
    assert commit_numbers(committer, batch(3))
    assert content(committer.folder.path) == expected(0, 2, 3)


def test_batch_jobs_come_between_the_batches_of_a_query(
    committer: StreamCommit, stream: StreamFolder
) -> None:
    """They are nobody's successors; one that is remembered can be repeated."""
    job, loader = bytes([1] * 16), bytes([2] * 16)
    commit_numbers(committer, batch(0))
    files = stage_numbers(stream, batch(0, job), 10)
    assert committer.commit(batch(0, job), files, streaming=False)
    for first in (True, False):
        files = stage_numbers(stream, batch(0, loader), 11)
        done = committer.commit(batch(0, loader), files, streaming=False, remember=True)
        assert done is first
    commit_numbers(committer, batch(1))
    assert content(stream.path) == expected(0, 1, 10, 11)


def test_a_stream_remembers_its_query_among_many_jobs() -> None:
    """However many there are: what it remembers is bounded."""
    writers = Writers().after(batch(4), streaming=True, remember=True)
    for number in range(300):
        job = BatchIdentity(number.to_bytes(16), 0)
        writers = writers.after(job, streaming=False, remember=True)
        assert writers.has(job)
    assert writers.has(batch(4))
    assert writers.current == QUERY
    assert len(writers.last) <= 65
    assert Writers.from_json(json.loads(json.dumps(writers.to_json()))) == writers


# --- attempts ------------------------------------------------------------------------------------


def test_what_other_attempts_of_a_task_staged_is_swept(committer: StreamCommit) -> None:
    """Speculation: both staged, one is committed."""
    layout = layout_of(committer.folder)
    (one,) = staging.stage(layout, batch(0), 0, [rows(0)])
    (two,) = staging.stage(layout, batch(0), 0, [rows(0)])
    assert one.name != two.name
    assert committer.commit(batch(0), [two])
    assert staged(committer.folder) == set()
    assert sum(content(committer.folder.path).values()) == ROWS


def test_only_leftovers_of_the_past_are_swept(
    committer: StreamCommit, stream: StreamFolder
) -> None:
    """Not what is staged for batches to come, nor another writer's, unless it is long ago."""
    dead = stage_numbers(stream, batch(0))
    to_come = stage_numbers(stream, batch(2))
    others = stage_numbers(stream, batch(0, OTHER))
    ancient = stage_numbers(stream, batch(1, OTHER))
    for file in ancient:
        os.utime(stream.path / "staging" / file.name, (0, 0))
    assert staged(stream) == {file.name for file in dead + to_come + others + ancient}
    commit_numbers(committer, batch(0))
    assert staged(stream) == {file.name for file in to_come + others}


def test_an_aborted_batch_leaves_nothing(committer: StreamCommit, stream: StreamFolder) -> None:
    """And can be committed later, staged anew."""
    committer.abort(stage_numbers(stream, batch(0)))
    assert staged(stream) == set()
    assert commit_numbers(committer, batch(0))


def test_what_a_manifest_names_is_not_aborted(stream: StreamFolder) -> None:
    """A commit that fails after its manifest will be completed by the next."""

    def fail(point: str) -> None:
        if point == "published":
            raise UsageError("it failed")

    failing = StreamCommit(stream, crash_after=fail)
    files = stage_numbers(stream, batch(0))
    with pytest.raises(UsageError, match="it failed"):
        failing.commit(batch(0), files)
    failing.abort(files)
    assert len(staged(stream)) == 1 + PARTITIONS
    after = StreamCommit(stream)
    assert not commit_numbers(after, batch(0))
    assert commit_numbers(after, batch(1))
    after.close()
    assert content(stream.path) == expected(0, 1)
    assert staged(stream) == set()


def test_a_task_that_fails_leaves_no_file(stream: StreamFolder) -> None:
    """Its next attempt stages all of it."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield from [rows(0)] * 10_000
        raise ValueError("the task failed")

    with pytest.raises(ValueError, match="the task failed"):
        staging.stage(layout_of(stream), batch(0), 0, failing())
    assert staged(stream) == set()


@pytest.mark.parametrize("harm", ["gone", "changed", "short"])
def test_staged_files_that_are_not_as_they_were_are_refused(
    committer: StreamCommit, stream: StreamFolder, harm: str
) -> None:
    """Before anything changes: the batch can be staged and committed again."""
    files = stage_numbers(stream, batch(0))
    path = stream.path / "staging" / files[1].name
    data = bytearray(path.read_bytes())
    if harm == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data if harm == "changed" else data[:-8])
    with pytest.raises(DamagedLog, match="staged file"):
        committer.commit(batch(0), files)
    assert not content(stream.path)
    assert commit_numbers(committer, batch(0))
    assert content(stream.path) == expected(0)


# --- crashes -------------------------------------------------------------------------------------


def run_child(stream: StreamFolder, first: int, point: str, count: int) -> int:
    """Commit three batches in a process that dies on the way."""
    command = [sys.executable, CHILD, str(stream.path), str(first), point, str(count)]
    return subprocess.run(command, check=False, timeout=120).returncode


def finish(stream: StreamFolder, until: int) -> None:
    """As Spark after a restart: all batches again, from the first that may not be there."""
    after = StreamCommit(stream)
    for number in range(until):
        commit_numbers(after, batch(number))
    after.close()
    assert content(stream.path) == expected(*range(until))
    assert staged(stream) == set()


@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_driver_that_is_killed_anywhere_leaves_every_row_once(
    plain_stream: StreamFolder, point: str, count: int
) -> None:
    """A real SIGKILL at each point of a commit; the next one completes what was begun."""
    assert run_child(plain_stream, 0, point, count) == -signal.SIGKILL
    assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_driver_that_is_killed_while_it_completes_leaves_every_row_once(
    plain_stream: StreamFolder, count: int
) -> None:
    """The recovery of a commit may be cut off, too; and so may the recovery of that."""
    assert run_child(plain_stream, 0, "appended", 1) == -signal.SIGKILL
    assert run_child(plain_stream, 0, "appended", count) == -signal.SIGKILL
    assert run_child(plain_stream, 0, "durable", 1) == -signal.SIGKILL
    assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 4)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("point", "count"), POINTS)
def test_a_driver_that_is_killed_fifty_times_leaves_every_row_once(
    plain_stream: StreamFolder, point: str, count: int
) -> None:
    """In each window; every process finds what the one before it has left."""
    for number in range(50):
        run_child(plain_stream, max(0, number - 1), point, count)
        assert set(content(plain_stream.path).values()) <= {1}
    finish(plain_stream, 52)


# --- zombies -------------------------------------------------------------------------------------

SLEEPS = [
    ("locked", 1),
    ("claimed", 1),
    ("settled", 1),
    ("verified", 1),
    ("published", 1),
    ("appended", 1),
    ("appended", 3),
    ("durable", 1),
    ("concluded", 1),
    ("cleared", 1),
    ("swept", 1),
]


def sleeper(stream: StreamFolder, point: str, count: int, meanwhile: list[BatchIdentity]):
    """A driver that sleeps at a point, while a successor commits some batches without its lock."""
    left = count

    def sleep(passed: str) -> None:
        nonlocal left
        left -= passed == point
        if left or passed != point:
            return
        left = -1
        successor = StreamCommit(stream, patience_seconds=0.0)
        for identity in meanwhile:
            commit_numbers(successor, identity)
        successor.close()

    return StreamCommit(stream, patience_seconds=0.0, crash_after=sleep)


@pytest.mark.parametrize(("point", "count"), SLEEPS)
@pytest.mark.parametrize("meanwhile", [[0], [0, 1], [0, 1, 2]])
def test_a_driver_that_slept_writes_nothing_when_it_wakes(
    stream: StreamFolder, point: str, count: int, meanwhile: list[int]
) -> None:
    """Its successor did not wait for its lock; what both had in hand is there once."""
    zombie = sleeper(stream, point, count, [batch(number) for number in meanwhile])
    with suppress(RewakeError):
        commit_numbers(zombie, batch(0))
    zombie.close()
    assert content(stream.path) == expected(*meanwhile)
    finish(stream, 5)


def test_a_manifest_that_was_published_too_late_is_dropped(stream: StreamFolder) -> None:
    """Others have written where its frames would be."""
    job = bytes([1] * 16)
    zombie = sleeper(stream, "verified", 1, [batch(0)])
    files = stage_numbers(stream, batch(0), 9)
    with pytest.raises(Fenced):
        zombie.commit(batch(0), files)
    assert any(name.startswith("commit-") for name in staged(stream))
    after = StreamCommit(stream)
    after.commit(batch(0, job), [], streaming=False)
    after.close()
    assert content(stream.path) == expected(0)
    assert not any(name.startswith("commit-") for name in staged(stream))


def test_two_queries_at_once_are_refused(stream: StreamFolder) -> None:
    """The second is told who is writing."""
    told = []

    def meet(point: str) -> None:
        if point == "published":
            rival = StreamCommit(stream, patience_seconds=0.05)
            with pytest.raises(LogInUse, match=r"03020100|00010203.*One query writes") as error:
                rival.commit(batch(0, OTHER), [])
            told.append(str(error.value))

    first = StreamCommit(stream, crash_after=meet)
    assert commit_numbers(first, batch(0))
    first.close()
    assert len(told) == 1
    assert f"process {os.getpid()}" in told[0]


def test_a_stranger_in_the_logs_is_noticed(plain_stream: StreamFolder) -> None:
    """A commit that is half there, and frames of somebody else behind it: nobody can tell."""
    assert run_child(plain_stream, 0, "durable", 1) == -signal.SIGKILL
    with open_log_writer(plain_stream.shards[1]) as writer:
        writer.append(TurnRecord(0, 0, 0, 0, 0, []))
    after = StreamCommit(plain_stream)
    with pytest.raises(DamagedLog, match=r"half in the stream.*shards \[1\]"):
        commit_numbers(after, batch(0))


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
    monkeypatch.setattr(staging, "_LARGEST_PART", 10)
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


# --- what is written down ------------------------------------------------------------------------


def test_a_manifest_is_read_back_or_refused(stream: StreamFolder) -> None:
    """Every flipped bit shows."""
    files = tuple(stage_numbers(stream, batch(5)))
    manifest = Manifest(3, batch(5), Writers(QUERY, {QUERY: 5, OTHER: 1}), (1, 2, 3), files)
    data = manifest.encode()
    assert Manifest.decode(data, "commit-3.json") == manifest
    for place in range(0, len(data), 7):
        harmed = bytearray(data)
        harmed[place] ^= 4
        with pytest.raises(DamagedLog, match=r"commit-3\.json"):
            Manifest.decode(bytes(harmed), "commit-3.json")
    for hostile in (b"", b"[]", b"null", b'{"format": 1}', b"\xff" * 20, b"[" * 100_000):
        with pytest.raises(DamagedLog):
            Manifest.decode(hostile, "commit-3.json")


def test_a_part_of_a_batch_is_read_back_or_refused() -> None:
    """It has one size."""
    mark = BatchPart(batch(7), 2, 9)
    assert BatchPart.decode(memoryview(mark.encode())) == mark
    for hostile in (b"", mark.encode()[:-1], mark.encode() + b"\0"):
        with pytest.raises(DamagedFrame):
            BatchPart.decode(hostile)


def test_staged_files_are_values() -> None:
    """They travel as JSON."""
    file = StagedFile("stage-x", 3, 100, 2**31, ())
    assert StagedFile.from_json(json.loads(json.dumps(file.to_json()))) == file


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
    rest = StreamSource(path, from_=ends, follow=False)
    valued(rest)
    assert rest.describe() != whole.describe()
    late = [event for shard in range(3) for event in drained(rest.open(shard, 3))]
    assert {number for event in late for number in event.batch["batch"].to_pylist()} == {1}
    assert sum(event.batch.num_rows for event in late) == PARTITIONS * ROWS
    assert StreamSource(path, from_="latest", follow=False).open(0, 3).read(0.0) is None
    with pytest.raises(UsageError, match=r"has 3 shards.*shards=3"):
        whole.open(0, 2)
    with pytest.raises(UsageError, match="a list of 3 positions"):
        StreamSource(path, from_=7)
    with pytest.raises(UsageError, match="2 positions"):
        StreamSource(path, from_=[1, 2])
