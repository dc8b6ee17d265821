"""What `rewake bench peers` counts, how it judges results, and what it says of who is not there."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from rewake.cli.app import app
from rewake.connectors.item_stream import ItemStream
from rewake.model.errors import OperatingFault
from rewake.oracle import aggregates as plain
from rewake.report import facts_now
from rewake_lab.bench.peers.application import Application
from rewake_lab.bench.peers.contenders import Contender, chosen, contenders
from rewake_lab.bench.peers.job import FIRST_US, Job, Workload
from rewake_lab.bench.peers.lines import (
    Ready,
    Result,
    Results,
    Rows,
    parsed,
    results_line,
    rows_line,
)
from rewake_lab.bench.peers.lives import Scale, before_a_closing, interval_us_of
from rewake_lab.bench.peers.marks import Marks
from rewake_lab.bench.peers.oracle import Oracle
from rewake_lab.bench.peers.run import Figure, Outcome, run
from rewake_lab.bench.peers.setup import PROGRAMS, Places
from rewake_lab.bench.peers.table import about, lines
from rewake_lab.bench.peers.written import FilesWritten, ProcessesWrote, Timeline
from rewake_lab.bench.report import write_bench_report

IDS = 50
TUPLES = 2_000
TINY = Scale(warm=0.1, speed=1.0, fill=0.1, settle=0.1, latency=0.3, tail=0.1, ids=IDS, watched=IDS)

# An engine in a few lines: count windows of ten over the item stream.  It keeps nothing, so after a
# kill it begins again, which is also a way to recover.  BREAK: spoils every result, or leaves.
STAND_IN = """
import sys, time
from pathlib import Path
sys.path.insert(0, PROGRAMS)
from item_columns import columns
job = dict(word.split("=", 1) for word in sys.argv[1:])
print("@ready", flush=True)
print("noise that is not meant for anybody", flush=True)
if BREAK == "leave":
    sys.exit("Traceback (most recent call last):\\n  File x\\nValueError: no more")
rate, position, origin, windows = float(job["rate"]), 0, 0.0, {}
gun = Path(job["folder"], "first-tuple-due-ms")
state = Path(job["folder"], "state")
state.mkdir(exist_ok=True)
while True:
    time.sleep(0.002)
    stop = position + 500
    if rate:
        if not gun.exists():
            continue
        stop = min(stop, int((time.time() * 1e3 - float(gun.read_text())) * rate / 1e3))
    said = []
    if stop <= position:
        continue
    found = columns(int(job["seed"]), int(job["ids"]), int(job["interval_us"]), position, stop)
    for item, price, when in zip(*(each.tolist() for each in found)):
        window = windows.setdefault(item, [])
        window.append(price)
        if len(window) == 10:
            said.append(f"{item},{when},{sum(window) / 10 + (BREAK == 'spoil')}")
            window.clear()
    (state / str(stop)).write_text("x" * (stop - position))
    position = stop
    print(f"@rows {position} {time.time() * 1e3}", flush=True)
    if said:
        print(f"@results {time.time() * 1e3} {' '.join(said)}", flush=True)
"""


def stand_in(tmp_path: Path, name: str, *, ours: bool = False, broken: str = "") -> Contender:
    program = tmp_path / f"{name}.py"
    program.write_text(f"PROGRAMS, BREAK = {str(PROGRAMS)!r}, {broken!r}\n{STAND_IN}")

    def command(job: Job) -> list[str]:
        return [sys.executable, str(program), *job.words()]

    return Contender(name, ours=ours, settings=f"settings of {name}", command=command)


def job_of(workload: Workload, **rest: int) -> Job:
    return Job(workload, Path("nowhere"), ids=IDS, watched=IDS, **rest)  # type: ignore[arg-type]


def tuples(job: Job) -> list[dict[str, int]]:
    """The stream with the job's event time."""
    rows = list(ItemStream(job.seed, job.ids).rows(0, TUPLES))
    for position, row in enumerate(rows):
        within = row["item_time"] - FIRST_US - 10 * position
        row["item_time"] = FIRST_US + position * job.interval_us + within
    return rows


AVERAGE = [("avg", "item_price", "average"), ("max", "item_time", "last")]


def test_a_job_survives_the_command_line() -> None:
    """Every program reads the same words."""
    job = Job(Workload.TIME, Path("some=where"), ids=7, rate=12.5, interval_us=200)
    assert Job.of(job.words()) == job


def test_lines_say_what_programs_write_and_the_rest_is_ignored() -> None:
    """Engines print what they like; only lines with an @ are ours."""
    result = Result(7, FIRST_US, 41.5)
    assert parsed("@ready\n") == Ready()
    assert parsed(rows_line(12, 3.25)) == Rows(12, 3.2)
    assert parsed("@rows/1 12 3.5") == Rows(12, 3.5, "1")
    assert parsed(results_line([result, result], 5.0)) == Results(5.0, (result, result))
    assert parsed("INFO started\n") is None
    with pytest.raises(OperatingFault, match="no line"):
        parsed("@results 5.0 7,8")


# --- the oracle --------------------------------------------------------------------------------


def test_count_windows_are_judged_as_the_plain_oracle_has_them() -> None:
    """Each of its results is right, and none is with another average or time."""
    job = job_of(Workload.COUNT)
    judge = Oracle(job)
    expected = plain.aggregate(
        tuples(job), by=["item_id"], window=("count", 10, 10), functions=AVERAGE
    )
    assert len(expected) > 100
    for row in expected:
        result = Result(row["item_id"], row["last"], row["average"])
        assert judge.right(result)
        assert not judge.right(result._replace(average=result.average + 0.1))
        assert not judge.right(result._replace(when_us=result.when_us + 10))


def test_running_averages_are_judged_as_the_plain_oracle_has_them() -> None:
    """The value after each tuple."""
    job = job_of(Workload.RUNNING)
    judge = Oracle(job)
    batches = [[row] for row in tuples(job)[:500]]
    for (row,) in plain.running(batches, by=["item_id"], functions=AVERAGE):
        assert judge.right(Result(row["item_id"], row["last"], row["average"]))
        assert not judge.right(Result(row["item_id"], row["last"], row["average"] - 1))


@pytest.mark.parametrize("interval_us", [20_000, 100_000])
def test_time_windows_are_judged_as_the_plain_oracle_has_them(interval_us: int) -> None:
    """Also when event time runs faster."""
    job = job_of(Workload.TIME, interval_us=interval_us)
    judge = Oracle(job)
    expected = plain.aggregate(
        tuples(job), by=["item_id"], window=("time", 10_000_000, 10_000_000),
        functions=AVERAGE[:1], time="item_time",
    )  # fmt: skip
    assert len(expected) > 100
    for row in expected:
        result = Result(row["item_id"], row["window_start"], row["average"])
        assert judge.right(result)
        assert not judge.right(result._replace(average=result.average + 0.1))
        closing = judge.closing_position(result)
        assert closing * interval_us + FIRST_US == row["window_end"]


def test_an_item_that_is_not_watched_is_never_right() -> None:
    """Its tuples were not looked at."""
    judge = Oracle(job_of(Workload.RUNNING))
    assert not judge.right(Result(IDS, FIRST_US, 1.0))
    assert not judge.right(Result(0, FIRST_US - 1, 1.0))


def columns_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("columns", PROGRAMS / "item_columns.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_programs_without_rewake_make_the_same_tuples() -> None:
    """Otherwise the others would do other work."""
    items, prices, times = columns_module().columns(3, 1_000, 10, 5_000, 6_000)
    rows = list(ItemStream(3, 1_000).rows(5_000, 6_000))
    assert items.tolist() == [row["item_id"] for row in rows]
    assert prices.tolist() == [row["item_price"] for row in rows]
    assert times.tolist() == [row["item_time"] for row in rows]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_makes_the_same_tuples() -> None:
    """As SQL, in batches that Python only names."""
    from rewake.spark.session import local_session
    from rewake_lab.spark.peers import RATE_SETTINGS, formula_of_items

    session = local_session(cores=1, conf=RATE_SETTINGS | {"spark.sql.session.timeZone": "UTC"})
    try:
        rows = session.range(5_000, 6_000, 1, 1).selectExpr("id AS position")
        for step in formula_of_items(3, 1_000, 10):
            rows = rows.selectExpr(*step)
        found = rows.selectExpr("item_id", "item_price", "unix_micros(item_time)").collect()
    finally:
        session.stop()
    expected = ItemStream(3, 1_000).rows(5_000, 6_000)
    assert [tuple(row) for row in found] == [tuple(row.values()) for row in expected]


# --- counting ----------------------------------------------------------------------------------


class ThreeBytesPerMs(Timeline):
    """Never looks; knows what was written by when."""

    def _bytes(self) -> int:
        return 0

    def bytes_at(self, at_ms: float) -> int:
        return int(at_ms) * 3


def marked(*marks: tuple[float, int]) -> Marks:
    made = Marks(ThreeBytesPerMs())
    for at_ms, rows in marks:
        made.hear(Rows(rows, at_ms))
    return made


def test_steady_work_is_measured_from_end_to_end() -> None:
    """All marks count, with what was written until then."""
    found = marked((0, 10), (500, 20), (1000, 30)).stretch()
    assert found == ((0, 10, 0), (1000, 30, 3000))


def test_work_in_fits_and_starts_is_measured_from_pause_to_pause() -> None:
    """Otherwise a fit more or less decides."""
    found = marked((0, 900), (2000, 1000), (2500, 1900), (4500, 2000), (5000, 2900)).stretch()
    assert found is not None
    assert [mark.at_ms for mark in found] == [2000, 4500]


def test_one_pause_alone_is_no_fair_stretch() -> None:
    """It waits for another; if there is none, it takes what there is."""
    marks = marked((0, 900), (2000, 1000), (2500, 1900))
    assert marks.stretch() is None
    assert marks.stretch(fair=False) is not None


def test_rows_of_several_processes_add_up() -> None:
    """Each counts its own."""
    made = Marks(ThreeBytesPerMs())
    made.hear(Rows(10, 0.0, "0"))
    made.hear(Rows(5, 500.0, "1"))
    found = made.stretch()
    assert found is not None
    assert [mark.rows for mark in found] == [10, 15]


def test_files_count_also_if_they_are_gone_again(tmp_path: Path) -> None:
    """A checkpoint lives for a second; hidden files do not count."""
    (tmp_path / "deep").mkdir()
    with FilesWritten(tmp_path) as files:
        (tmp_path / "deep" / "one").write_bytes(bytes(100))
        (tmp_path / ".one.crc").write_bytes(bytes(1000))
        assert files.bytes() == 100
        (tmp_path / "deep" / "one").unlink()
        (tmp_path / "two").write_bytes(bytes(10))
        assert files.bytes() == 110
        with (tmp_path / "two").open("ab") as grown:
            grown.write(bytes(5))
        assert files.bytes() == 115
        assert files.bytes_at(0.0) <= 100
        assert files.bytes_at(time.time() * 1e3 + 1e6) == 115


def test_a_process_that_is_gone_has_written_nothing() -> None:
    """It cannot be asked any more; that is no failure."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert ProcessesWrote(lambda: [gone.pid]).bytes() == 0
    assert ProcessesWrote(lambda: [os.getpid()]).bytes() >= 0


# --- lives -------------------------------------------------------------------------------------


def test_a_killed_program_leaves_no_process_and_all_that_it_had_said(tmp_path: Path) -> None:
    """A line that was cut short is not among it."""
    code = "import time; print('@ready'); print('@rows 5 1.0\\n@rows 6', end='', flush=True);"
    command = [sys.executable, "-c", code + "time.sleep(600)"]
    with Application(command, tmp_path, dict(os.environ)) as life:
        assert next(life.lines(time.monotonic() + 60)) == Ready()
        pids = life.pids
        _, rest = life.kill()
    assert rest in ([], [Rows(5, 1.0)])
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_a_program_that_ends_by_itself_is_quoted_without_its_stack(tmp_path: Path) -> None:
    """What went wrong, not where."""
    code = "raise ValueError('no such thing')"
    with (
        Application([sys.executable, "-c", code], tmp_path, dict(os.environ)) as life,
        pytest.raises(
            OperatingFault, match=r"ended by itself: .*ValueError: no such thing"
        ) as told,
    ):
        list(life.lines(time.monotonic() + 60))
    assert "File" not in str(told.value)


def test_event_time_runs_so_fast_that_windows_close(tmp_path: Path) -> None:
    """Every interval is a whole part of a window; the fast keep the usual one."""
    assert interval_us_of(10_000_000) == 10
    for rate in (1.0, 300.0, 5_000.0, 180_000.0):
        interval = interval_us_of(rate)
        assert 10_000_000 % interval == 0
        assert 10_000_000 / interval / rate <= 3 or interval == 10_000_000
    job = Job(Workload.TIME, tmp_path, rate=1_000.0, interval_us=5_000)
    # A window every 2 s; the kill is half a second before one closes.
    assert before_a_closing(job, 0.0, 1_500.0) == 1_500.0
    assert before_a_closing(job, 0.0, 1_501.0) == 3_500.0


def test_all_figures_of_all_that_run(tmp_path: Path) -> None:
    """Three lives each; what is ours is compared with the best of the others."""
    found = run(
        tmp_path, lambda _: None,
        [stand_in(tmp_path, "mine", ours=True), stand_in(tmp_path, "theirs")],
        [Workload.COUNT], scale=TINY,
    )  # fmt: skip
    measured = {(each.contender, each.column): each.value for each in found.figures}
    for name in ("mine", "theirs"):
        assert measured[name, "speed"] > 0
        assert measured[name, "bytes"] > 0
        assert measured[name, "recovery"] > 0
    ratios = [row for row in found.rows() if row.unit == "ratio"]
    assert {row.target for row in ratios} == {">= 1", "<= 1"}
    assert not found.interrupted


@pytest.mark.parametrize(
    ("broken", "said"), [("spoil", "gave a wrong result"), ("leave", "ValueError: no more")]
)
def test_who_fails_or_is_wrong_costs_nobody_else(tmp_path: Path, broken: str, said: str) -> None:
    """It is said what happened, and the others are measured."""
    found = run(
        tmp_path, lambda _: None,
        [stand_in(tmp_path, "bad", broken=broken), stand_in(tmp_path, "good")],
        [Workload.COUNT], scale=TINY,
    )  # fmt: skip
    assert {each.contender for each in found.figures} == {"good"}
    bad = [sentence for sentence in found.missing if "bad" in sentence]
    assert len(bad) == 1
    assert said in bad[0]


def raising(error: BaseException) -> Callable[[Job], list[str]]:
    def command(job: Job) -> list[str]:
        raise error

    return command


def test_an_interrupted_run_keeps_what_it_has_and_says_what_is_missing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of the second."""
    stopped = Contender("second", ours=False, settings="", command=raising(KeyboardInterrupt()))
    last = stand_in(tmp_path, "third")
    found = run(
        tmp_path, lambda _: None, [stand_in(tmp_path, "first"), stopped, last], [Workload.COUNT],
        scale=TINY,
    )  # fmt: skip
    assert found.interrupted
    assert {each.contender for each in found.figures} == {"first"}
    assert ["second" in found.missing[0], "third" in found.missing[1]] == [True, True]
    assert json.loads(json.dumps(found.as_json()))["interrupted"] is True


def test_a_run_ends_in_time_and_says_what_it_left_out(tmp_path: Path) -> None:
    """Nobody is begun who would not be done in time."""
    moments = iter([0.0, 1_760.0])
    never = Contender("slow", ours=False, settings="", command=raising(AssertionError()))
    found = run(
        tmp_path, lambda _: None, [never], [Workload.TIME], scale=TINY,
        clock=lambda: next(moments),
    )  # fmt: skip
    assert found.missing == [
        "10-second windows: slow: left out, because the time of the run was up"
    ]


def test_who_is_not_installed_is_left_out_with_a_line_how_to_add_it(tmp_path: Path) -> None:
    """The folder is in the line when it is not the usual one."""
    found = {each.name: each for each in contenders(Places(tmp_path))}
    how = f"not installed; add it with `rewake bench peers --setup` --venvs {tmp_path}"
    assert found["Bytewax"].missing == how
    assert found["Apache Flink"].missing == how
    outcome = run(tmp_path, lambda _: None, [found["Bytewax"]], list(Workload), scale=TINY)
    assert outcome.missing == [f"Bytewax: {how}"]
    assert [each.name for each in chosen(list(found.values()), ["FLINK"])] == ["Apache Flink"]


# --- showing -----------------------------------------------------------------------------------


def an_outcome() -> Outcome:
    count = Workload.COUNT
    return Outcome(
        contenders={"mine": True, "theirs": False, "other": False},
        settings={"mine": "as it comes"},
        figures=[
            Figure(count, "mine", "speed", 4.0),
            Figure(count, "theirs", "speed", 2.0),
            Figure(count, "other", "speed", 1.0),
            Figure(count, "mine", "recovery", 3.0),
            Figure(count, "theirs", "recovery", 2.0),
        ],
        missing=["other, recovery: it did not come back"],
    )


def test_we_are_compared_with_the_best_of_the_others() -> None:
    """More is better in one column, less in the rest; the note says who is meant."""
    rows = [row for row in an_outcome().rows() if row.unit == "ratio"]
    assert [(row.value, row.met, row.note) for row in rows] == [
        (2.0, True, "mine / theirs"),
        (1.5, False, "mine / theirs"),
    ]


def test_the_table_stars_the_best_and_shows_what_is_not_known() -> None:
    """A row for each contender, a column for each figure."""
    assert lines(an_outcome(), Workload.COUNT) == [
        ["mine", "4 *", "-", "-", "3"],
        ["theirs", "2", "-", "-", "2 *"],
        ["other", "1", "-", "-", "-"],
    ]


def test_the_page_has_the_tables_the_settings_and_what_is_missing(tmp_path: Path) -> None:
    """Whoever reads it sees the same as on the terminal."""
    outcome = an_outcome()
    path = write_bench_report(
        outcome.rows(), tmp_path / "page.html", "peers", "rewake bench peers", facts_now(),
        about(outcome),
    )  # fmt: skip
    text = path.read_text()
    behind = "Not the first: SIGKILL to next right result, 1.5 times (mine / theirs)"
    for words in ("count-10 average", "4 *", "as it comes", "did not come back", behind):
        assert words in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "nonsense"], "no workload 'nonsense'; there are count, running, time"),
        (["--peer", "nobody"], "nobody is called nobody; there are Rewake nodes"),
        (["--folder", "not-there"], "there is no folder"),
    ],
)
def test_bad_input_is_answered_in_words(tmp_path: Path, words: list[str], said: str) -> None:
    """Before anything runs."""
    result = CliRunner().invoke(app, ["bench", "peers", "--venvs", str(tmp_path), *words])
    assert result.exit_code != 0
    assert said in str(result.exception)
