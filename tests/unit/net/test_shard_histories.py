"""Shards of an operator that are not of one history: refused by their hosts, in any order."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from shard_vocabulary import NEXT_RUN, RUN, Executor, executors

from rewake.log.frame import Frame, SectionKind, TurnRecord
from rewake.model.errors import HistoryMismatch
from rewake.node.micro_batches.shard_batches import BatchRecord
from rewake.stores import create_log, open_log_reader, open_log_writer

SHARDS = range(3)


def ask(executor: Executor, at: Path, batch: int, price: int, **changed: Any) -> None:
    """Give a batch to all shards, or to one: the same row to each, so that its digest is one."""
    for shard in (changed.pop("shard"),) if "shard" in changed else SHARDS:
        executor.ask(at, batch, [(1, price)], shard=shard, shards=len(SHARDS), **changed)


def replace(folder: Path, by: Path) -> None:
    """Put a copy of a folder in another's place."""
    shutil.rmtree(folder)
    shutil.copytree(by, folder)


@pytest.mark.parametrize("wrong", SHARDS)
@pytest.mark.parametrize("first", SHARDS)
def test_a_shard_with_other_rows_in_its_past_is_refused_and_named(
    tmp_path: Path, wrong: int, first: int
) -> None:
    """Whichever is asked first, the wrong one goes on in no case; its neighbour does not either."""
    at, old = tmp_path / "at", tmp_path / "old"
    shard = at / f"shard-000{wrong}"
    with executors(at) as (executor,):
        ask(executor, at, 0, 10)
        ask(executor, at, 1, 20)
        shutil.copytree(shard, old)
        ask(executor, at, 1, 21, run=NEXT_RUN)
        shutil.copytree(shard, tmp_path / "right")
        replace(shard, old)
        run = bytes([3] * 16)
        refused = []
        for step in SHARDS:
            asked = (first + step) % len(SHARDS)
            try:
                ask(executor, at, 2, 30, shard=asked, run=run)
            except HistoryMismatch as error:
                refused.append((asked, f"before batch 2, {shard} had" in str(error)))
        assert set(refused) == {(wrong, True), ((wrong - 1) % len(SHARDS), True)}
        replace(shard, tmp_path / "right")
        ask(executor, at, 2, 30, run=bytes([4] * 16))


def test_a_shard_that_is_put_back_within_a_run_is_refused(tmp_path: Path) -> None:
    """Its log is opened anew, and compared then; the others need not be."""
    at, shard = tmp_path / "at", tmp_path / "at" / "shard-0001"
    with executors(at) as (executor,):
        ask(executor, at, 0, 10)
        shutil.copytree(shard, tmp_path / "old")
        ask(executor, at, 0, 11, run=NEXT_RUN)
        ask(executor, at, 1, 20, run=NEXT_RUN, shard=0)
        replace(shard, tmp_path / "old")
        with pytest.raises(HistoryMismatch, match=r"before batch 1, .*shard-0001 had"):
            ask(executor, at, 1, 20, run=NEXT_RUN, shard=1)


def test_shards_within_the_batch_under_way_go_on(tmp_path: Path) -> None:
    """Some have it, some do not, some have another plan of it."""
    at = tmp_path / "at"
    with executors(at) as (executor,):
        ask(executor, at, 0, 10)
        ask(executor, at, 1, 20, shard=0)
        ask(executor, at, 1, 21, shard=1, run=NEXT_RUN)
        for run, batch in ((3, 1), (3, 2), (4, 2), (4, 3)):
            ask(executor, at, batch, 22, run=bytes([run] * 16))


def forget_past(shard: Path, aside: Path) -> None:
    """Make the log as it would have been written before there were chains."""
    shutil.move(shard, aside)
    with open_log_reader(aside) as reader:
        create_log(shard, shard.name, reader.descriptor.metadata)
        with open_log_writer(shard) as writer:
            for frame in reader.frames():
                writer.append(_without_past(frame))
            writer.flush()


def _without_past(frame: Frame) -> TurnRecord:
    sections = [
        each._replace(payload=BatchRecord.decode(bytes(each.payload))._replace(past=None).encode())
        if each.kind == SectionKind.BATCH
        else each
        for each in frame.sections
    ]
    return TurnRecord(*frame[3:8], tuple(sections))


def test_logs_without_chains_go_on_and_are_compared_from_then_on(tmp_path: Path) -> None:
    """As they were written by versions before."""
    at, shard = tmp_path / "at", tmp_path / "at" / "shard-0001"
    with executors(at) as (executor,):
        ask(executor, at, 0, 10)
        ask(executor, at, 1, 20)
        for number in SHARDS:
            forget_past(at / f"shard-000{number}", tmp_path / f"aside-{number}")
        ask(executor, at, 2, 30)
        shutil.copytree(shard, tmp_path / "old")
        ask(executor, at, 2, 31, run=NEXT_RUN)
        replace(shard, tmp_path / "old")
        with pytest.raises(HistoryMismatch, match="shard-0001 had"):
            ask(executor, at, 3, 40, run=RUN)
