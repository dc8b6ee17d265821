"""Late tuples are told: by real processes, in status, warnings, the folder and after a kill."""

import logging
from pathlib import Path

import pyarrow as pa
from drill_vocabulary import until
from typer.testing import CliRunner

from rewake import Batches, StreamSource
from rewake.cli.app import app
from rewake.drill.lateness import late_in_folder
from rewake.graph import Query, time_window
from rewake.net.queries.running import start_processes

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
LATE = 30

PROGRAM = """
import sys
sys.path.insert(0, {here!r})
from test_late import build
query = build()
"""


def build(*, route_late: bool = False) -> Query:
    """Windows of 10 over 1,000 rows in order, and 30 that come when all of these have closed."""
    rows = [{"k": n % 3, "t": n} for n in range(1000)]
    rows += [{"k": 1, "t": n} for n in range(LATE)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    source = Batches(table, event_tuples=100, time_column="t", slack=20)
    query = Query("late-ones")
    sums = query.source("rows", source).aggregate(
        by="k", window=time_window(10), time="t", count=True, route_late=route_late, name="sums"
    )
    sums.to_stream("sums")
    if route_late:
        sums.late.to_stream("too-late")
    return query


def test_dropped_tuples_are_counted_warned_of_and_kept_in_the_folder(
    tmp_path: Path, caplog
) -> None:
    """In `status` while it runs, in a warning, and in `explain --folder` when it is over."""
    folder = tmp_path / "state"
    with caplog.at_level(logging.WARNING, "rewake"), start_processes(build(), folder) as running:
        running.await_end(60)
        said = running.status()["sums"]
    assert (said["late_tuples"], said["late_dropped"]) == (LATE, LATE)
    assert abs(said["late_percent"] - 100 * LATE / (1000 + LATE)) < 1e-9
    (warning,) = [each.getMessage() for each in caplog.records if "late tuples" in each.message]
    assert warning.startswith("query late-ones: sums: 30 late tuples dropped so far, 2.91% of what")
    program = tmp_path / "late_query.py"
    program.write_text(PROGRAM.format(here=str(Path(__file__).parent)))
    told = CliRunner().invoke(app, ["explain", str(program), "--folder", str(folder)])
    assert "late tuples so far\n  sums: 30, dropped\n" in told.stdout


def test_a_kept_stream_tells_other_queries_that_it_carries_watermarks(tmp_path: Path) -> None:
    """What is behind it there goes by them, too; what is late for it has none."""
    with start_processes(build(route_late=True), tmp_path) as running:
        running.await_end(60)
    places = running.plan.streams["sums"] + running.plan.streams["too-late"]
    sources = [StreamSource(tmp_path / "nodes" / node, output=output) for node, output in places]
    assert [each.watermarks for each in sources] == [True, False]


def test_dead_letters_are_counted(tmp_path: Path) -> None:
    """Of a step without state, too."""
    table = pa.table({"text": ["1", "two", "3", "four"]})
    query = Query("numbers")
    numbers = query.source("texts", Batches(table)).map(
        number="CAST(text AS INT)", on_error="divert", name="numbers"
    )
    numbers.to_stream("numbers")
    numbers.output("dead").to_stream("texts-that-are-none")
    with start_processes(query, tmp_path) as running:
        running.await_end(60)
        assert running.status()["numbers"]["dead_letters"] == 2


def test_diverted_tuples_are_counted_and_nobody_is_warned(tmp_path: Path, caplog) -> None:
    """They are where the user wants them."""
    query = build(route_late=True)
    with caplog.at_level(logging.WARNING, "rewake"), start_processes(query, tmp_path) as running:
        running.await_end(60)
        said = running.status()["sums"]
        with running.subscribe("too-late") as late:
            rows = sum(event.batch.num_rows for event in late)
    assert said["late_diverted"] == rows == LATE
    assert "late_dropped" not in said
    assert not caplog.records
    assert late_in_folder(build(route_late=True).plan(), tmp_path)[1:] == [
        "  sums: 30, on an output of their own"
    ]


def test_a_count_of_late_tuples_survives_a_kill(tmp_path: Path) -> None:
    """It is in the log with the windows: the next life goes on counting, and counts none twice."""
    query = Query("late-and-killed")
    entry = query.entry("rows", SCHEMA, watermarks=True)
    entry.aggregate(by="k", window=time_window(10), time="t", count=True, name="sums").to_stream()

    def rows(*times: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"k": 1, "t": time} for time in times], SCHEMA)

    def late() -> int:
        return int(running.status()["sums"].get("late_dropped", 0))

    with start_processes(query, tmp_path) as running:
        running.await_start()
        with running.produce("rows") as producer:
            producer.send(rows(1, 2, 100), watermark=90)
            producer.send(rows(3, 4, 110), watermark=100)
            producer.flush()
            until(lambda: late() == 2)
            running.signal_node("sums")
            until(lambda: running.status()["sums"]["epoch"] == 2 and "sums" in running.running)
            producer.send(rows(5, 120), watermark=110)
            producer.flush()
            until(lambda: late() == 3)
