"""State and checkpoint that do not continue each other: nothing is lost without a word."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structured_vocabulary import (
    averages,
    end_hosts,
    expected,
    forget_plan,
    results,
    run_query,
    write_input,
)
from task_vocabulary import require_spark

from rewake.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """Return a session that tries a task once: a refusal stays one, however often it is tried."""
    require_spark()
    session = local_session(cores=2, app_name="rewake-tests")
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder whose shard hosts are gone at the end."""
    yield tmp_path
    if (tmp_path / "state" / "hosts").exists():
        end_hosts(tmp_path)


def one_item(row: dict[str, Any]) -> bool:
    """The rows of one key: whichever shard it is in, the other one gets none."""
    return bool(row["item"] == 0)


@pytest.mark.parametrize(
    ("copied", "error"), [(False, "CheckpointWithoutLog"), (True, "LogBehindCheckpoint")]
)
def test_an_old_or_missing_folder_is_refused_when_a_shard_has_no_rows(
    spark: "SparkSession", folder: Path, copied: bool, error: str
) -> None:
    """That a shard had nothing in this batch says nothing about the batches before."""
    state, copy = folder / "state", folder / "copy"
    write_input(folder, 2)
    run_query(spark, folder)
    end_hosts(folder)
    shutil.copytree(state, copy)
    write_input(folder, 1, start=2)
    run_query(spark, folder)
    end_hosts(folder)
    shutil.rmtree(state)
    if copied:
        shutil.copytree(copy, state)
    write_input(folder, 1, start=3, wanted=one_item)
    with pytest.raises(Exception, match=error):
        run_query(spark, folder)


def test_two_shards_whose_folders_were_swapped_are_refused(
    spark: "SparkSession", folder: Path
) -> None:
    """And go on when they are where they were."""
    first, second, aside = (folder / "state" / name for name in ("shard-0000", "shard-0001", "a"))

    def swap() -> None:
        end_hosts(folder)
        for source, target in ((first, aside), (second, first), (aside, second)):
            shutil.move(source, target)

    write_input(folder, 2)
    run_query(spark, folder)
    swap()
    write_input(folder, 1, start=2)
    with pytest.raises(Exception, match=r"OtherShard.*shard-000\d holds the log of shard"):
        run_query(spark, folder)
    swap()
    run_query(spark, folder)
    assert results(folder) == expected(3)


def test_a_batch_that_is_planned_anew_with_more_rows_is_computed_anew(
    spark: "SparkSession", folder: Path
) -> None:
    """From the state before it, by the host that took it and by one that did not."""
    write_input(folder, 3)
    run_query(spark, folder)
    for host_survives, files in ((True, 2), (False, 3)):
        if not host_survives:
            end_hosts(folder)
        write_input(folder, 1, start=1 + files)
        forget_plan(folder, 2)
        run_query(spark, folder, files=files)
        whole = expected(2 + files)
        wanted = {
            0: whole[0],
            1: whole[1],
            2: sorted(row for n in range(2, 2 + files) for row in whole[n]),
        }
        assert results(folder) == wanted
    write_input(folder, 1, start=5)
    run_query(spark, folder)
    assert results(folder) == wanted | {3: expected(6)[5]}


@pytest.mark.parametrize("shard", ["shard-0000", "shard-0001"])
def test_a_shard_from_before_a_batch_was_planned_anew_is_refused(
    spark: "SparkSession", folder: Path, shard: str
) -> None:
    """It ends with the same batch as the other one, of other rows; the right one goes on."""
    state, old, right = folder / "state", folder / "old", folder / "right"
    write_input(folder, 2)
    run_query(spark, folder)
    end_hosts(folder)
    shutil.copytree(state / shard, old)
    write_input(folder, 1, start=2)
    forget_plan(folder, 1)
    run_query(spark, folder, files=2)
    end_hosts(folder)
    shutil.move(state / shard, right)
    shutil.copytree(old, state / shard)
    write_input(folder, 1, start=3)
    for _ in range(2):
        with pytest.raises(Exception, match=r"HistoryMismatch.*before batch 2, .*shard-0001 had"):
            run_query(spark, folder)
        end_hosts(folder)
    shutil.rmtree(state / shard)
    shutil.move(right, state / shard)
    run_query(spark, folder)
    whole = expected(4)
    assert results(folder) == {0: whole[0], 1: sorted(whole[1] + whole[2]), 2: whole[3]}


def test_batches_without_any_rows_are_no_gap(spark: "SparkSession", folder: Path) -> None:
    """Rows that a filter removes, for one shard or for all."""
    write_input(folder, 1, wanted=one_item)
    write_input(folder, 2, start=1, wanted=lambda _row: False)
    write_input(folder, 1, start=3)
    run_query(spark, folder, averages(folder))
    write_input(folder, 1, start=4)
    query = run_query(spark, folder)
    assert query.lastProgress["batchId"] == 4
