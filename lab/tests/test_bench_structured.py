"""What `rewake bench structured` counts, and how it kills an application."""

import subprocess
import sys
from pathlib import Path

import pytest

from rewake.log.frame import Section, SectionKind, TurnRecord
from rewake.model.errors import OperatingFault
from rewake.stores import create_log, open_log_reader, open_log_writer
from rewake_lab.bench.structured import measure as structured
from rewake_lab.bench.structured.contenders import (
    HEADLINE,
    OURS,
    PER_KEY,
    Batch,
    Contender,
    Written,
    count_new,
    log_bytes_by_batch,
    native,
    state_bytes_by_batch,
    state_files,
)
from rewake_lab.bench.structured.measure import batch_times, bytes_written
from rewake_lab.bench.structured.restart import (
    application,
    descendants,
    first_batch_seconds,
    killed,
)
from rewake_lab.spark.state import STATE_STORES


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))


def append_batches(shard: Path, batches: list[int]) -> None:
    create_log(shard, shard.name)
    with open_log_writer(shard) as writer:
        for batch in batches:
            identity = bytes(16) + batch.to_bytes(8, "little")
            sections = (Section(SectionKind.BATCH, identity), Section(SectionKind.INPUT, b"rows"))
            writer.append(TurnRecord(0, 0, 0, 0, 0, sections))
        writer.flush()


def contender(name: str, folder: Path, sizes: dict[int, int]) -> Contender:
    made = Contender(name, None, folder, 10, lambda rows: rows, lambda _folder: sizes)
    made.measured += [Batch(number, 1000, 0.5) for number in sizes]
    return made


def test_the_changes_of_all_partitions_count_for_the_batch_that_made_them(tmp_path: Path) -> None:
    """Version n + 1 is what batch n left; snapshots and checksums are not counted."""
    state = tmp_path / "checkpoint" / "state" / "0"
    put(state / "0" / "1.changelog", 10)
    put(state / "1" / "1.changelog", 20)
    put(state / "0" / "2_3f2a.changelog", 5)
    put(state / "1" / "3.delta", 7)
    put(state / "1" / "3.zip", 100)
    put(state / "1" / "SSTs" / "000008-5f46.sst", 1000)
    put(state / "1" / ".3.delta.crc", 1000)
    put(state / "1" / "3.snapshot", 1000)
    assert state_bytes_by_batch(state_files(tmp_path)) == {0: 30, 1: 5, 2: 7}


def test_everything_that_appears_counts_also_if_it_is_gone_again(tmp_path: Path) -> None:
    """Changes and snapshots, on average over the batches in which they appeared."""
    made = native(None, tmp_path, 10)
    state = tmp_path / "checkpoint" / "state" / "0" / "0"
    put(state / "1.changelog", 10)
    made.look()
    before = set(made.files)
    put(state / "2.changelog", 10)
    put(state / "SSTs" / "000008-5f46.sst", 500)
    made.look()
    (state / "SSTs" / "000008-5f46.sst").unlink()
    put(state / "SSTs" / "000009-5f46.sst", 1000)
    put(state / "3.changelog", 20)
    put(state / "3.zip", 70)
    put(state / ".3.zip.crc", 10_000)
    made.look()
    made.appeared[5] = Written()
    count_new(made.appeared[5], {path: made.files[path] for path in set(made.files) - before})
    assert made.everything_per_batch(5) == (10 + 500 + 1000 + 20 + 70) / 2
    assert made.appeared[5].snapshot_files == 3
    (state / "2.changelog").unlink()
    made.measured = [Batch(1, 5, 0.1), Batch(2, 5, 0.1)]
    assert made.bytes_per_batch(5) == (10 + 20) / 2
    with pytest.raises(OperatingFault, match="no state"):
        made.everything_per_batch(6)


def test_the_frames_of_all_shards_count_for_their_batch(tmp_path: Path) -> None:
    """A batch that one shard has trimmed already is left out: its size is not known any more."""
    append_batches(tmp_path / "at" / "shard-0000", [4, 5, 6])
    append_batches(tmp_path / "at" / "shard-0001", [5, 6, 6])
    with open_log_reader(tmp_path / "at" / "shard-0000") as reader:
        one = next(reader.frames()).length
    assert log_bytes_by_batch(tmp_path) == {5: 2 * one, 6: 3 * one}


def test_no_log_is_no_bytes(tmp_path: Path) -> None:
    """Before the first batch there is nothing to count."""
    assert log_bytes_by_batch(tmp_path) == {}


def test_bytes_are_those_of_measured_batches_of_the_size(tmp_path: Path) -> None:
    """Batches that were not measured, or were of another size, do not count."""
    made = contender(OURS, tmp_path, {1: 100, 2: 300})
    made.measured.append(Batch(3, 50, 0.1))
    assert made.bytes_per_batch(1000) == 200
    with pytest.raises(OperatingFault, match=r"no trace of batches \[3\]"):
        made.bytes_per_batch(50)


def test_bytes_written_are_compared_with_their_target(tmp_path: Path) -> None:
    """The ratio is ours to Spark's, and the row says whether that is little enough."""
    mine = contender(OURS, tmp_path, {1: 100, 2: 100})
    theirs = contender(HEADLINE, tmp_path, {1: 400, 2: 400})
    theirs.appeared[1000] = Written(2, 800, 0)
    *_, ratio = bytes_written(mine, theirs, 1000, "running average", "<= 0.3333")
    assert (ratio.value, ratio.met) == (0.25, True)


def test_small_batches_are_compared_by_their_time() -> None:
    """The ratio is the median of the ratios within rounds; more than 1 is too slow."""
    runs = [[0.2, 0.2, 0.9], [0.1, 0.1, 0.9]]
    rows = batch_times(1000, 100_000, [OURS, HEADLINE], runs)
    assert [(row.value, row.met) for row in rows] == [(200, None), (100, None), (2, False)]
    assert rows[-1].name == "time per 1,000-row batch: rewake / RocksDB with changelog"
    many = batch_times(1000, 1_000_000, [OURS, HEADLINE], runs)
    assert many[-1].name.startswith("time per 1,000-row batch, 1,000,000 ids")


def test_every_number_of_ids_meets_every_size_of_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of Spark's state stores, with the targets that there are."""

    def run(self: Contender, rows: int, *, skip: int, count: int) -> float:
        self.measured.append(Batch(rows, rows, 0.5))
        self.appeared[rows] = Written(1, 800, 0)
        return 0.5

    monkeypatch.setattr(Contender, "run", run)
    monkeypatch.setattr(Contender, "bytes_per_batch", lambda _self, _rows: 100.0)
    bench = structured.Bench(None, tmp_path, lambda _name: None, structured.Scale())
    rows = [*bench.few_ids(), *bench.many_ids(), *bench.count_windows()]
    names = [row.name for row in rows]
    assert len(names) == len(set(names)), "two figures of one name cannot be told apart"
    for ids in ("100,000", "1,000,000"):
        for size in ("100,000", "1,000,000"):
            for about in ("running average", "count-10 windows"):
                assert any(
                    name.startswith(f"{about}, {ids} ids, {size}-row batches: rewake")
                    for name in names
                )
        assert f"count-10 windows, {ids} ids, 1,000-row batches: rewake" in names
        for api in PER_KEY:
            assert f"count-10 windows, {ids} ids, 4,000-row batches: {api}" in names
    aims = {row.name: row.target for row in rows}
    for store in STATE_STORES:
        few = f"running average, 100,000 ids, %s-row batches: rewake / {store}"
        many = f"running average, 1,000,000 ids, 1,000,000-row batches: rewake / {store}"
        assert [aims[few % "1,000,000"], aims[few % "100,000"]] == [">= 1", ">= 1.5"]
        assert aims[many] == ">= 2"
        for ids in ("", ", 1,000,000 ids"):
            assert aims[f"time per 1,000-row batch{ids}: rewake / {store}"] == "<= 1"


def test_progress_tells_what_a_batch_took() -> None:
    """Spark tells milliseconds; a batch is known by its number."""
    progress = {"batchId": 3, "numInputRows": 1000, "durationMs": {"triggerExecution": 250}}
    assert Batch.of(progress) == Batch(3, 1000, 0.25)


def test_killing_an_application_leaves_none_of_its_processes() -> None:
    """Also those that its processes started, in sessions of their own."""
    code = (
        "import subprocess, sys, time;"
        "s = [sys.executable, '-c', 'import time; time.sleep(600)'];"
        "subprocess.Popen(s, start_new_session=True, stdout=subprocess.DEVNULL);"
        "print('up', flush=True); time.sleep(600)"
    )
    application = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert application.stdout is not None
    assert application.stdout.readline() == "up\n"
    below = descendants(application.pid)
    assert len(below) == 1
    killed(application)
    assert application.returncode == -9
    assert not Path(f"/proc/{below[0]}/exe").exists()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.soak
def test_a_killed_application_goes_on_with_the_batch_it_was_in(tmp_path: Path) -> None:
    """Its first batch is that of the plan before the kill, and has the same number of rows."""
    with application(HEADLINE, tmp_path, 1000, 100) as batches:
        assert [next(batches).rows, next(batches).number] == [1000, 1]
    assert 0 < first_batch_seconds(HEADLINE, tmp_path, 1000, 100) < 120
    assert state_bytes_by_batch(state_files(tmp_path))[0] > 0
