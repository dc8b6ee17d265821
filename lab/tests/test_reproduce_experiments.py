"""The parts that the experiments are made of, at sizes that take no time."""

from pathlib import Path

import pytest

from rewake.connectors.item_stream import ItemStream
from rewake.recovery.policies.policy import OpenOnly
from rewake_lab.reproduce.cec import target_runs
from rewake_lab.reproduce.cec.target_runs import Sizes, crash_and_recover, write_upstream
from rewake_lab.reproduce.driving import Logged, Sink, averages, events, made_batches
from rewake_lab.reproduce.experiment import Setting
from rewake_lab.reproduce.open_cost import CONFIGURATIONS, DISK, NATIVE, NET, Workload, measure
from rewake_lab.reproduce.thesis.persistence import CONFIGURATIONS as PERSISTENCE
from rewake_lab.reproduce.thesis.persistence import throughput, tuples_of


def test_the_sink_says_how_many_bytes_it_got() -> None:
    """Also those that were gathered last."""
    with Sink() as sink:
        sink.send(bytes(200_000))
        sink.send(b"the end")
        assert sink.finish() == 200_007


def test_a_logged_operator_counts_results_opens_and_checks(tmp_path: Path) -> None:
    """Three items in windows of 2: every window but those still open gives a result."""
    logged = Logged(tmp_path / "log", averages(2), OpenOnly())
    batches = made_batches(ItemStream(1, 3), 1, 20)
    for event in events(batches, 0, 20):
        logged.turn(event, 0.0)
    still_open = logged.cec.operator.open_parts
    logged.close()
    assert logged.opens == logged.tuples + still_open
    assert 2 * logged.tuples + still_open == 20
    assert logged.checks == 0


def test_all_configurations_give_the_same_results(tmp_path: Path) -> None:
    """They differ in control tuples and in what is persisted, in nothing else."""
    workload = Workload("slow", window=10, items=2)
    rows = list(measure(Setting(tmp_path), workload, 5, 400, rounds=1))
    by_name = {row["configuration"]: row for row in rows}
    assert set(by_name) == set(CONFIGURATIONS)
    assert len({row["results"] for row in rows}) == 1
    assert by_name[NATIVE]["opens"] == 0
    assert by_name[NET]["opens"] == by_name[DISK]["opens"] > 0
    assert by_name[NET]["sink_bytes"] == by_name[DISK]["sink_bytes"]


@pytest.mark.parametrize("configuration", PERSISTENCE)
def test_a_filter_passes_all_tuples_however_they_are_persisted(
    tmp_path: Path, configuration: str
) -> None:
    """On two stripes, too, where there is a log."""
    row = throughput(configuration, tuples_of(256, 8, 1), 20, tmp_path / "log", stripes=2)
    assert float(row["megabytes_per_s"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_tuples_have_the_size_that_was_asked_for() -> None:
    """Throughput is counted in their bytes."""
    batch = tuples_of(1024, 16, 1)
    assert sum(column.nbytes for column in batch.columns) == 16 * 1024


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Setting, Path]:
    """200 items, and the log of what comes before the operator."""
    size = Sizes(200, 10)
    monkeypatch.setattr(target_runs, "sizes", lambda _setting: size)
    write_upstream(tmp_path / "upstream", ItemStream(1, size.items), size)
    return Setting(tmp_path), tmp_path / "upstream"


def test_a_tighter_extent_takes_more_checks(tiny: tuple[Setting, Path]) -> None:
    """CEC IV.B; recovery finds as many windows as were open, or the run fails."""
    setting, upstream = tiny
    tight, loose = (
        crash_and_recover(setting, upstream, "a tenth of it", records=records)
        for records in (180, 8 * 180)
    )
    assert tight["checks"] > loose["checks"]
    assert tight["extent_records"] < loose["extent_records"]
    assert tight["open_windows"] == loose["open_windows"]


def test_a_tighter_replay_takes_more_checks_and_replays_less(tiny: tuple[Setting, Path]) -> None:
    """CEC IV.B: "relaxing the U target leads to fewer" CHECKs."""
    setting, upstream = tiny
    tight, loose = (
        crash_and_recover(setting, upstream, "a tenth of it", tuples=tuples)
        for tuples in (250, 2000)
    )
    assert tight["checks"] > loose["checks"]
    assert tight["replay_tuples"] < loose["replay_tuples"]
    assert tight["replay_bytes"] < loose["replay_bytes"]


def test_sizes_shrink_alike() -> None:
    """A tenth of the items is a tenth of the windows and of the rate."""
    small, full = Sizes(10_000, 37), Sizes(100_000, 184)
    assert full.open_windows == 90_000
    assert small.open_windows * 10 == full.open_windows
    assert small.rate * 10 == full.rate
    assert small.tuples % small.event_tuples == 0
