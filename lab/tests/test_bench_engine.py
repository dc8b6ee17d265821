"""`rewake bench engine`: what its page shows."""

from pathlib import Path

import pytest
from sample_drill import sample_drill

from rewake.drill.kept import course_of
from rewake.report import Raw, data_folder, facts_now
from rewake_lab.bench.report import bench_page, write_bench_report
from rewake_lab.bench.rows import Row, Shown


@pytest.mark.parametrize("again", [False, True])
def test_the_page_shows_a_run_with_its_kill_over_time(again: bool, tmp_path: Path) -> None:
    """Throughput and latency with the kill marked; also when it is made again from its data."""
    path = tmp_path / "engine.html"
    shown = Shown("The slowest of them.", course_of(sample_drill()))
    write_bench_report(
        [Row("p99", 1.0, "ms", "<= 50")], path, "rewake bench engine", "rewake bench engine",
        facts_now(), shown=shown,
    )  # fmt: skip
    written = bench_page(Raw.read(data_folder(path))).html() if again else path.read_text()
    for part in ("Throughput", "Latency", "kill averages", "The slowest of them.",
                 "How each node came back"):  # fmt: skip
        assert part in written
