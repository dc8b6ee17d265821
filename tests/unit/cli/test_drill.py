"""`rewake drill` and `rewake demo` as people and programs use them, with nodes as processes."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rewake import StreamSource
from rewake.cli.app import app, main
from rewake.drill import queries
from rewake.drill.when import NODE_POINTS
from rewake.oracle.items import Expected, expected_windows
from rewake.report import charts

SMALL = ["--tuples", "40000", "--keys", "400", "--rate", "100000", "--on", "processes"]
VERDICT = ("lost", "duplicated", "reordered", "wrong")


def rewake(*words: object, columns: int = 200) -> Result:
    """Run a command in this process."""
    environ = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, [str(word) for word in words], env=environ)


def figures(result: Result) -> dict[str, Any]:
    """What `--json` printed, alone on stdout."""
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def check_figures(found: dict[str, Any]) -> None:
    """The fields that programs rely on."""
    assert found["results"] == found["expected"] > 0
    assert found["tuples_per_s"] > 0
    # So short a run may have been one outage from the kill on.
    assert {"p50", "p99"} <= set(found["latency_ms"])
    latency = found["latency_with_outages_ms"]
    assert 0 < latency["p50"] <= latency["p99"]
    assert [found[name] for name in VERDICT] == [0, 0, 0, 0]
    (kill,) = found["kills"]
    assert kill["node"] == "averages"
    phases = found["recovery_ms"]
    assert set(phases) == {"detect", "restart", "load", "replay", "total", "beyond_restart"}
    assert 0 < phases["detect"] < phases["total"]
    assert Path(found["report"]).is_file()


def test_a_drill_prints_its_figures_for_a_program(tmp_path: Path) -> None:
    """One JSON object, nothing else on stdout."""
    result = rewake("drill", "items", *SMALL, "--kill", "averages@40%", "--json",
                    "--folder", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = figures(result)
    assert (found["ok"], found["query"], found["tuples"]) == (True, "items", 40_000)
    check_figures(found)
    log = tmp_path / "query" / "nodes" / "averages"
    shown = rewake("inspect", "log", log).stdout
    assert "avg(item_price), max(item_time) by item_id over windows of 10 tuples" in shown
    stream = StreamSource(log, begin=0, follow=False).open(0, 1)
    rows = 0
    while (event := stream.read(0.0)) is not None:
        rows += event.batch.num_rows
    assert rows == found["results"]


def test_the_demo_kills_a_node_and_prints_figures_and_table(tmp_path: Path) -> None:
    """The same as a drill, with a shorter name."""
    words = ["demo", "--on", "processes", "--seconds", "0.6", "--rate", "100000", "--keys", "400"]
    result = rewake(*words, "--kill", "averages@200ms", "--json", "--folder", tmp_path / "json")
    assert result.exit_code == 0, result.stderr
    check_figures(figures(result))
    result = rewake(*words, "--kill", "", "--folder", tmp_path / "table")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^tuples +60,000$", result.stdout, re.MULTILINE)
    assert re.search(r"^kills +0$", result.stdout, re.MULTILINE)
    assert "0 lost, 0 duplicated, 0 reordered, 0 wrong" in result.stdout
    assert f"report: {tmp_path / 'table' / 'report.html'}" in result.stdout


def test_repeats_are_told_one_by_one_and_together(tmp_path: Path) -> None:
    """Each with the next seed, in a folder of its own; kill points count as kills."""
    result = rewake("drill", "items-sharded", *SMALL, "--kill", "averages-0@node.after_work#3",
                    "--kill", "averages-1@500s", "--repeat", 2, "--folder", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "2 runs, 2 kills: 0 lost, 0 duplicated, 0 reordered, 0 wrong" in result.stdout
    assert result.stdout.count("averages-1@500s did not happen") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"run-0", "run-1"}


def test_a_node_that_falls_asleep_is_replaced(tmp_path: Path) -> None:
    """SIGSTOP: found by missed heartbeats, fenced, and never heard again."""
    result = rewake("drill", "items", *SMALL, "--pause", "averages@30%", "--json",
                    "--folder", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = figures(result)
    assert [kill["action"] for kill in found["kills"]] == ["pause"]
    assert found["recovery_ms"]["detect"] > 100
    assert [found[name] for name in VERDICT] == [0, 0, 0, 0]


def test_the_report_needs_nothing_but_itself(tmp_path: Path) -> None:
    """No script, no picture, no style from elsewhere."""
    result = rewake("drill", *SMALL, "--kill", "cheap@40%", "--folder", tmp_path)
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "report.html").read_text()
    addresses = re.findall(r"""(\S*?)["'(](?:https?:)?//""", page)
    assert [each for each in addresses if not each.startswith("xmlns")] == []
    assert "<script" not in page
    assert not re.search(r"<link|@import|<img|url\((?!#)", page)
    assert "every result right" in page
    assert "kill cheap" in page


def test_a_drill_that_could_not_be_reported_is_refused_before_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The packages for charts are an extra."""
    monkeypatch.setattr(charts, "find_spec", lambda _name: None)
    result = rewake("drill", *SMALL, "--folder", tmp_path)
    assert "pip install 'rewake[report]'" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


# --- a check that fails --------------------------------------------------------------------------


def test_a_wrong_result_exits_with_4_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here it is the oracle that errs, on purpose, about one total and one result too many."""

    def mistaken(*given: Any) -> Expected:
        right = expected_windows(*given)
        totals = right.totals.copy()
        totals[3] += 1
        columns = (right.items, totals, right.closed_at)
        last = (right.items[-1], 0, right.closed_at[-1] + 1)
        return Expected(*(np.r_[each, more] for each, more in zip(columns, last, strict=True)))

    monkeypatch.setattr(queries, "expected_windows", mistaken)
    result = rewake("drill", *SMALL, "--folder", tmp_path)
    assert result.exit_code == 4
    assert "1 lost, 1 wrong of" in result.stdout
    assert "RESULTS ARE NOT RIGHT" in (tmp_path / "report.html").read_text()
    result = rewake("demo", "--seconds", "0.3", "--rate", "100000", "--keys", "300", "--kill", "",
                    "--on", "processes", "--json", "--folder", tmp_path / "demo")  # fmt: skip
    assert result.exit_code == 4
    found = figures(result)
    assert (found["ok"], found["lost"], found["wrong"]) == (False, 1, 1)


# --- usage errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["drill", "nothing"], "no built-in query 'nothing'; there are items, items-sharded"),
        (["drill", "--kill", "averages"], "'averages' is not NODE@WHEN"),
        (["drill", "--kill", "averages@soon"], "neither a time (3s), a share of the input (40%)"),
        (["drill", "--kill", "averages@140%"], "a percentage from 0% to below 100%"),
        (["drill", "--pause", "avg@40%"], "no node 'avg'; the query has items, cheap, averages"),
        (["drill", "--kill", "coordinator@coordinator.stopping"], "nor a kill point"),
        (["drill", "--approach", "hope"], "no recovery approach 'hope'; choose one of"),
        (["drill", "--on", "yarn"], "cannot run on 'yarn'; choose one of spark, processes"),
        (["demo", "--kill", "average@4s"], "no node 'average'; the query has items, cheap"),
        (["demo", "--on", "moon"], "cannot run on 'moon'"),
        (["drill", "missing.py"], "there is no file missing.py"),
        (["explain", "nothing"], "no built-in query 'nothing'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Exit code 2, one message, nothing on stdout, and no folder left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["rewake", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["drill", "--tuples", "0"], ["drill", "--repeat", "0"], ["drill", "--rate", "-5"],
     ["demo", "--seconds", "0"], ["demo", "--window", "0"]],
)  # fmt: skip
def test_numbers_out_of_range_are_usage_errors(words: list[str]) -> None:
    """As every option says."""
    result = rewake(*words)
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_kill_points_are_listed() -> None:
    """Those that a node passes, one per line or as JSON."""
    lines = rewake("drill", "--points").stdout.splitlines()
    assert lines == list(NODE_POINTS)
    assert "recovery.replaying" in lines
    assert json.loads(rewake("drill", "--points", "--json").stdout) == lines


# --- what ends early -----------------------------------------------------------------------------


def processes_of(group: int) -> list[str]:
    """The processes of a group that live, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_ctrl_c_stops_everything_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the whole group: exit code 130, one word, no traceback."""
    words = ["demo", "--on", "processes", "--seconds", "60", "--rate", "20000", "--kill", ""]
    command = [sys.executable, "-c", "from rewake.cli import main; main()", *words]
    environ = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith("running 'items' on 3 nodes")
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("rewake-demo-*/first-tuple-due-ms")):
            assert time.monotonic() < deadline, "the query did not start"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "interrupted\n")
    assert list(tmp_path.glob("rewake-*")) == []
    deadline = time.monotonic() + 10
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(process.pid) == []


def test_a_failure_removes_the_folder_that_the_command_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But never one that the user gave."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken(*_: Any) -> Expected:
        raise OSError("the oracle is ill")

    monkeypatch.setattr(queries, "expected_windows", broken)
    small = ["--tuples", "2000", "--keys", "10", "--on", "processes"]
    assert isinstance(rewake("drill", *small).exception, OSError)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("rewake-")] == []
    given = tmp_path / "given"
    assert isinstance(rewake("drill", *small, "--folder", given).exception, OSError)
    assert (given / "query").is_dir()
