"""Batches into a stream: every row once, whoever repeats, overlaps or is refused."""

import json
import os
import sys
from collections.abc import Iterator
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
    batch,
    commit_numbers,
    content,
    expected,
    frames,
    layout_of,
    new_stream,
    rows,
    stage_numbers,
    staged,
)

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.folder import StreamFolder
from rewake.connectors.streams.manifest import (
    BatchPart,
    Manifest,
    StagedFile,
    Writers,
    Written,
    rows_of,
)
from rewake.connectors.streams.source import StreamSource
from rewake.log.frame import SectionKind
from rewake.model.errors import (
    CheckpointBehindLog,
    CheckpointWithoutLog,
    DamagedFrame,
    DamagedLog,
    LogBehindCheckpoint,
    OtherQuery,
    OtherRows,
    UsageError,
)
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.operators.row_digest import NO_ROWS
from rewake.operators.shuffle import Shuffle
from rewake.spark.datasource import staging

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
    files = stage_numbers(committer.folder, batch(1))
    committer.commit(batch(1), files)
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
    assert Writers.from_json(stored) == Writers(QUERY, {QUERY: Written(1, rows_of(files))})


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
        for _ in range(500):
            assert not each.commit(batch(2), files)
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
    files = stage_numbers(stream, batch(1))
    assert not committer.commit(batch(1), files)  # it was there before
    assert not committer.commit(batch(1), files, takeover=True)
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


def test_a_batch_that_is_there_with_other_rows_is_refused(committer: StreamCommit) -> None:
    """They stay as they are; whoever says so goes on with them, and so does another process."""
    stream = committer.folder
    for number in (0, 1):
        commit_numbers(committer, batch(number))
    other = stage_numbers(stream, batch(1), 7)
    for files in (other, other[1:], []):
        for again in (committer, StreamCommit(stream)):
            with pytest.raises(OtherRows, match=r"60 are there, \d+ were to be written.*otherRows"):
                again.commit(batch(1), files)
    assert not commit_numbers(committer, batch(1))
    assert not committer.commit(batch(1), other, keep_rows=True)
    assert commit_numbers(committer, batch(2))
    assert content(stream.path) == expected(0, 1, 2)


def test_a_batch_before_the_last_is_refused(committer: StreamCommit) -> None:
    """Nobody knows any more which rows it had."""
    for number in (0, 1):
        commit_numbers(committer, batch(number))
    with pytest.raises(CheckpointBehindLog, match="has come to batch 1"):
        commit_numbers(committer, batch(0))
    assert not commit_numbers(committer, batch(0), keep_rows=True)
    assert content(committer.folder.path) == expected(0, 1)


def test_a_stream_remembers_its_query_among_many_jobs() -> None:
    """However many there are: what it remembers is bounded."""
    writers = Writers().after(batch(4), NO_ROWS, streaming=True, remember=True)
    for number in range(300):
        job = BatchIdentity(number.to_bytes(16), 0)
        writers = writers.after(job, NO_ROWS, streaming=False, remember=True)
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


# --- what is written down ------------------------------------------------------------------------


def test_a_manifest_is_read_back_or_refused(stream: StreamFolder) -> None:
    """Every flipped bit shows."""
    files = tuple(stage_numbers(stream, batch(5)))
    manifest = Manifest(
        3,
        batch(5),
        Writers(QUERY, {QUERY: Written(5, NO_ROWS), OTHER: Written(1, NO_ROWS)}),
        (1, 2, 3),
        files,
    )
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
    file = StagedFile("stage-x", 3, 100, 2**31, (), NO_ROWS)
    assert StagedFile.from_json(json.loads(json.dumps(file.to_json()))) == file
