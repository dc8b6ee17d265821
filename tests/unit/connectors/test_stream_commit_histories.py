"""Shards of a stream that are not of one history: refused, before anything is written."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commit_vocabulary import (
    batch,
    commit_numbers,
    content,
    expected,
    frames,
    layout_of,
    new_stream,
    rows,
    stage_numbers,
)

from rewake.connectors.streams.commit import StreamCommit
from rewake.connectors.streams.commit_logs import read_concluded
from rewake.connectors.streams.folder import StreamFolder, open_stream
from rewake.connectors.streams.manifest import BatchPart
from rewake.connectors.streams.source import StreamSource
from rewake.log.frame import SectionKind, TurnRecord
from rewake.model.errors import HistoryMismatch
from rewake.spark.datasource.staging import stage
from rewake.spark.datasource.streams import find_shards
from rewake.stores import create_log, open_log_reader, open_log_writer

SHARDS = range(3)


def commit(path: Path, *numbers: int, label: int | None = None) -> None:
    """Some batches, by a process of their own; `label` makes their rows other ones."""
    committer = StreamCommit(open_stream(path), patience_seconds=0.0)
    try:
        for number in numbers:
            staged = stage_numbers(committer.folder, batch(number), label)
            committer.commit(batch(number), staged)
    finally:
        committer.close()


def put_back(source: Path, target: Path, shard: int) -> None:
    """One shard's folder as it is in another folder of the stream."""
    name = f"shard-{shard:04d}"
    shutil.rmtree(target / name)
    shutil.copytree(source / name, target / name)


@pytest.mark.parametrize("shard", SHARDS)
def test_who_reads_a_stream_of_mixed_shards_is_told(
    stream: StreamFolder, tmp_path: Path, shard: int
) -> None:
    """By a source and by a DataFrame, with the folder that is not as it was left."""
    commit(stream.path, 0, 1)
    shutil.copytree(stream.path, tmp_path / "older")
    commit(stream.path, 2, 3)
    shutil.copytree(stream.path, tmp_path / "right")
    put_back(tmp_path / "older", stream.path, shard)
    for read in (StreamSource, find_shards):
        with pytest.raises(HistoryMismatch, match="are not of one history"):
            read(str(stream.path))
    put_back(tmp_path / "right", stream.path, shard)
    assert len(StreamSource(stream.path).shards) == len(find_shards(str(stream.path))) == 3


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("batch_job", [False, True])
def test_a_shard_that_is_put_back_alone_is_refused(
    stream: StreamFolder, tmp_path: Path, shard: int, batch_job: bool
) -> None:
    """By queries and by batch jobs; when the right one is back, all goes on."""
    copy, right = tmp_path / "copy", tmp_path / "right"
    commit(stream.path, 0)
    shutil.copytree(stream.path, copy)
    commit(stream.path, 1)
    shutil.copytree(stream.path, right)
    put_back(copy, stream.path, shard)
    committer = StreamCommit(stream, patience_seconds=0.0)
    before = [len(list(each.iterdir())) for each in stream.shards]
    with pytest.raises(HistoryMismatch, match=f"shard-000{shard or 1} "):
        commit_numbers(committer, batch(2), streaming=not batch_job, allow_gaps=True)
    assert [len(list(each.iterdir())) for each in stream.shards] == before
    put_back(right, stream.path, shard)
    assert commit_numbers(committer, batch(2))
    committer.close()
    assert content(stream.path) == expected(0, 1, 2)


@pytest.mark.parametrize("shard", SHARDS)
def test_a_shard_of_another_branch_is_refused(
    stream: StreamFolder, tmp_path: Path, shard: int
) -> None:
    """A copy of the whole went on with other rows; later both had the same batches."""
    branch = tmp_path / "branch"
    commit(stream.path, 0)
    shutil.copytree(stream.path, branch)
    commit(stream.path, 1, 2)
    commit(branch, 1, label=101)
    commit(branch, 2)
    put_back(branch, stream.path, shard)
    with pytest.raises(HistoryMismatch, match="put back alone"):
        commit(stream.path, 3)


def only_first(path: Path, number: int, label: int | None = None) -> None:
    """A batch that has rows for the first shard alone, by a process of its own."""
    committer = StreamCommit(open_stream(path), patience_seconds=0.0)
    layout = replace(layout_of(committer.folder), key=None)
    staged = stage(layout, batch(number), 0, [rows(number if label is None else label, 0)])
    assert {part.shard for file in staged for part in file.parts} == {0}
    try:
        committer.commit(batch(number), staged, streaming=False)
    finally:
        committer.close()


@pytest.mark.parametrize("branch", [False, True])
def test_a_first_shard_that_is_put_back_is_refused_though_no_other_had_rows_since(
    stream: StreamFolder, tmp_path: Path, branch: bool
) -> None:
    """The other shards are where it says; but they have had a later writer, or another one."""
    copy = tmp_path / "copy"
    commit(stream.path, 0)
    shutil.copytree(stream.path, copy)
    only_first(stream.path, 1)
    if branch:
        only_first(copy, 1, label=101)
    put_back(copy, stream.path, 0)
    with pytest.raises(HistoryMismatch, match=r"the last writer of .*shard-0000"):
        only_first(stream.path, 2)


def test_a_repeat_tells_that_a_shard_was_put_back(stream: StreamFolder, tmp_path: Path) -> None:
    """Else a query whose last batch is repeated would end as if all were well."""
    commit(stream.path, 0)
    shutil.copytree(stream.path, tmp_path / "copy")
    commit(stream.path, 1)
    put_back(tmp_path / "copy", stream.path, 2)
    with pytest.raises(HistoryMismatch, match="shard-0002"):
        commit(stream.path, 1)


class Died(BaseException):
    """Not an error: nobody handles it."""


def die_at(stream: StreamFolder, number: int, point: str, count: int) -> None:
    """Commit a batch, and die when a point has been passed so often."""
    passed: list[str] = []

    def crash_after(name: str) -> None:
        passed.append(name)
        if passed.count(point) == count:
            raise Died

    committer = StreamCommit(stream, patience_seconds=0.0, crash_after=crash_after)
    with pytest.raises(Died):
        commit_numbers(committer, batch(number))


def test_copies_of_moments_within_one_commit_are_of_one_history(
    stream: StreamFolder, tmp_path: Path
) -> None:
    """Each shard may be as it was at another moment; the manifest says how it goes on."""
    commit(stream.path, 0, 1)
    moments: list[Path] = []

    def look(point: str) -> None:
        if point in ("published", "appended", "durable"):
            moments.append(tmp_path / f"moment-{len(moments)}")
            shutil.copytree(stream.path, moments[-1])

    committer = StreamCommit(stream, patience_seconds=0.0, crash_after=look)
    commit_numbers(committer, batch(2))
    committer.close()
    assert len(moments) > 2 * len(SHARDS)
    for first in range(0, len(moments), 3):
        mixed = tmp_path / f"mixed-{first}"
        shutil.copytree(moments[first], mixed)
        for shard in (1, 2):
            put_back(moments[(5 * first + 7 * shard) % len(moments)], mixed, shard)
        commit(mixed, 2, 3)
        assert content(mixed) == expected(0, 1, 2, 3)


def test_half_a_batch_of_another_branch_is_not_completed(
    stream: StreamFolder, tmp_path: Path
) -> None:
    """The manifest is there, and stays for when the right folder is back."""
    branch, right = tmp_path / "branch", tmp_path / "right"
    commit(stream.path, 0)
    shutil.copytree(stream.path, branch)
    commit(stream.path, 1)
    commit(branch, 1, label=101)
    die_at(stream, 2, "appended", 6)
    shutil.copytree(stream.path, right)
    put_back(branch, stream.path, 2)
    with pytest.raises(HistoryMismatch, match="shard-0002"):
        commit(stream.path, 2)
    put_back(right, stream.path, 2)
    commit(stream.path, 2)
    assert content(stream.path) == expected(0, 1, 2)


def test_half_a_batch_whose_manifest_is_gone_is_refused(stream: StreamFolder) -> None:
    """Spark would offer the batch again, and half of its rows would be there twice."""
    commit(stream.path, 0)
    die_at(stream, 1, "appended", 1)
    (manifest,) = (stream.path / "staging").glob("commit-*.json")
    content_of_manifest = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(HistoryMismatch, match=r"manifest of the next one is not in `staging`"):
        commit(stream.path, 1)
    manifest.write_bytes(content_of_manifest)
    commit(stream.path, 1)
    assert content(stream.path) == expected(0, 1)


def without_chains(source: Path, target: Path) -> StreamFolder:
    """The same stream as it was written before shards were compared."""
    made = new_stream(target)
    for old, new in zip(open_stream(source).shards, made.shards, strict=True):
        with open_log_reader(old) as reader:
            metadata, name = reader.descriptor.metadata, new.name
        shutil.rmtree(new)
        create_log(new, name, metadata)
        with open_log_writer(new) as writer:
            for frame in frames(old):
                writer.append(_without_chain(frame))
            writer.flush()
    return made


def _without_chain(frame) -> TurnRecord:
    sections = []
    for each in frame.sections:
        payload = bytes(each.payload)
        if each.kind == SectionKind.BATCH:
            payload = BatchPart.decode(payload)._replace(chain=b"").encode()
        elif each.kind == SectionKind.METADATA:
            stored = json.loads(payload)
            del stored["shards"]
            payload = json.dumps(stored).encode()
        sections.append(each._replace(payload=payload))
    return TurnRecord(
        frame.t_end,
        frame.timestamp,
        frame.open_windows,
        frame.tuples,
        frame.records,
        tuple(sections),
    )


def test_a_stream_from_before_goes_on_and_is_compared_from_then_on(
    stream: StreamFolder, tmp_path: Path
) -> None:
    """Its frames have no chains; those of the next commit begin one."""
    commit(stream.path, 0, 1)
    old = without_chains(stream.path, tmp_path / "old")
    assert read_concluded(old.shards).ends == ()
    commit(old.path, 2)
    assert content(old.path) == expected(0, 1, 2)
    shutil.copytree(old.path, tmp_path / "copy")
    commit(old.path, 3)
    put_back(tmp_path / "copy", old.path, 1)
    with pytest.raises(HistoryMismatch, match="shard-0001"):
        commit(old.path, 4)
