"""`rewake demo`: real processes, a real SIGKILL, and what is printed about it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rewake.cli.app import app
from rewake.lab import demo as lab_demo
from rewake.lab.demo import DemoReport, DemoSettings, Kill, Observer, Recovery
from rewake.lab.demo_check import Verdict
from rewake.lab.demo_process import WorkerDied, WorkerProcess
from rewake.log.verify import verify
from rewake.model.errors import LogExists, UsageError
from rewake.stores import LocalStore

SMALL = ["--tuples", "200000", "--keys", "200", "--seed", "3"]


def command(*words: object) -> list[str]:
    """The command line as a user starts it."""
    return [sys.executable, "-c", "from rewake.cli import main; main()", *map(str, words)]


def rewake(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | environ,
    )


# --- real runs ---------------------------------------------------------------------------------


def test_nothing_is_lost_or_repeated_when_the_process_is_killed(tmp_path: Path) -> None:
    """A whole run: one kill, one recovery, every result compared with the oracle."""
    result = rewake("demo", *SMALL, "--folder", tmp_path, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["ok"] is True
    assert [report[name] for name in ("lost", "duplicated", "reordered", "wrong")] == [0, 0, 0, 0]
    assert report["broken_promises"] == 0
    assert 19_000 < report["results"] < 20_000
    (kill,), (recovery,) = report["kills"], report["recoveries"]
    # The kill comes in the middle half of the first worker's share of the stream, or a few stream
    # events later, and before the end in any case.
    assert 25_000 <= kill["position"] < 200_000
    assert kill["frames_durable"] <= kill["frames_found"]
    assert recovery["pid"] != kill["pid"]
    assert recovery["epoch"] == 1
    assert recovery["windows"] > 0
    assert recovery["tuples_replayed"] > 0
    found = verify([LocalStore(tmp_path / "log")])
    assert (found.intact, found.end_sequence) == (True, report["frames"])


def test_the_story_is_told_and_the_log_stays_to_be_inspected(tmp_path: Path) -> None:
    """Without a folder a new one is made; the commands that are printed work."""
    result = rewake("demo", *SMALL, TMPDIR=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    assert "kill -9" in result.stdout
    assert "0 lost, 0 duplicated, 0 reordered, 0 wrong" in result.stdout
    (folder,) = tmp_path.glob("rewake-demo-*")
    commands = re.findall(r"^  \S*rewake (inspect \w+ \S+)$", result.stdout, re.MULTILINE)
    assert commands == [f"inspect log {folder}/log", f"inspect checkpoint {folder}/log"]
    for line in commands:
        assert rewake(*line.split()).returncode == 0


def test_several_kills_and_no_log_left_behind(tmp_path: Path) -> None:
    """Each kill is recovered from; --clean removes what the demo made, and only that."""
    (tmp_path / "mine").touch()
    options = ["--tuples", "300000", "--keys", "200", "--kills", "2"]
    result = rewake("demo", *options, "--folder", tmp_path, "--clean", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["kills"]) == 2
    assert report["folder"] is None
    positions = [kill["position"] for kill in report["kills"]]
    assert positions == sorted(positions)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_stream_that_leaves_next_to_nothing_in_the_log_is_no_trap(tmp_path: Path) -> None:
    """Turns that only update open windows write no frame; the kill comes all the same."""
    options = ["--tuples", "200000", "--keys", "2", "--window", "150000"]
    result = rewake("demo", *options, "--folder", tmp_path, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["ok"], report["results"], len(report["kills"])) == (True, 0, 1)


def test_ctrl_c_ends_the_worker_and_removes_the_log(tmp_path: Path) -> None:
    """No orphan, no litter, exit code 130."""
    words = command("demo", "--tuples", 10**9)  # more than it could finish before the signal
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        worker = None
        while worker is None:
            worker = re.search(r"process (\d+) is ready", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker[1]), 0)
    assert list(tmp_path.glob("rewake-demo-*")) == []


# --- the worker --------------------------------------------------------------------------------


def settings(folder: Path, **changes: Any) -> DemoSettings:
    """Small settings."""
    usual = {"tuples": 200_000, "items": 200, "window": 10, "kills": 1, "seed": 1}
    return DemoSettings(folder=folder, **(usual | changes))


def test_a_worker_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """The parent's end of a pipe closes with the parent, however that ends."""
    demo = settings(tmp_path)
    lab_demo._create_log(demo)
    with WorkerProcess(demo.worker(available=50_000)) as worker:
        for message in worker.messages():
            if message["event"] == "recovered":
                break
        assert worker._process.stdin is not None
        worker._process.stdin.close()
        assert worker._process.wait(timeout=60) == 1


def test_a_worker_that_dies_by_itself_is_reported_with_what_it_said(tmp_path: Path) -> None:
    """Its stderr is the only witness."""
    with WorkerProcess(settings(tmp_path / "nowhere").worker(available=0)) as worker:
        assert [message["event"] for message in worker.messages()] == ["ready"]
        with pytest.raises(WorkerDied, match=r"with exit code 1.*\n(.*\n)*.*is not a directory"):
            worker.check_ended_well()


def test_leaving_the_block_ends_the_worker(tmp_path: Path) -> None:
    """Whatever happens in it."""
    demo = settings(tmp_path)
    lab_demo._create_log(demo)
    with pytest.raises(KeyError), WorkerProcess(demo.worker(available=50_000)) as worker:
        raise KeyError
    assert worker._process.returncode == -signal.SIGKILL


# --- what is refused, and how a failure looks ----------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"tuples": 0}, {"items": 0}, {"window": 0}, {"kills": -1}, {"kills": 51}, {"kills": 20}],
)
def test_settings_that_cannot_be_carried_out_are_refused(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    """Among them: a stream that is over before all kills can land."""
    with pytest.raises(UsageError):
        settings(tmp_path, **changes)


def test_a_log_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """It may be somebody's."""
    lab_demo._create_log(settings(tmp_path))
    before = {path: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    with pytest.raises(LogExists, match="choose another --folder"):
        lab_demo.run_demo(settings(tmp_path), Observer())
    assert {path: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before


RunWith = Callable[..., tuple[int, str]]


@pytest.fixture
def run_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunWith:
    """Run the command on an invented outcome; return (exit code, output)."""

    def run(verdict: Verdict, *options: str, broken_promises: int = 0) -> tuple[int, str]:
        def invented(settings: DemoSettings, observer: Observer) -> DemoReport:
            report = DemoReport(settings, results=9, broken_promises=broken_promises)
            report.kills.append(Kill(11, 50_000, 5, 6, 128))
            times = {"start_ms": 900.0, "open_ms": 4.0, "load_ms": 2.0, "replay_ms": 1.5}
            report.recoveries.append(Recovery(12, 1, *times.values(), 40, 90, 3, 999, 47_000, 3000))
            report.verdict = verdict
            observer.killed(report.kills[0])
            observer.recovered(report.recoveries[0])
            observer.checked(report)
            return report

        monkeypatch.setattr(lab_demo, "run_demo", invented)
        result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path), *options])
        return result.exit_code, result.output

    return run


@pytest.mark.parametrize("fault", ["lost", "duplicated", "reordered", "wrong"])
def test_a_failed_check_exits_with_4(run_with: RunWith, fault: str) -> None:
    """An invariant was violated, and the output says which."""
    faults = {"lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0} | {fault: 2}
    code, output = run_with(Verdict(expected=9, **faults))
    assert code == 4
    assert f"2 {fault}" in output
    assert "this is a bug" in output
    assert "--seed 1" in output


def test_a_durable_frame_that_is_gone_exits_with_4(run_with: RunWith) -> None:
    """Even when the results were computed again: downstream has seen the first ones."""
    code, output = run_with(Verdict(9, 0, 0, 0, 0), broken_promises=3)
    assert code == 4
    assert "3 durable frames gone or changed" in output


def test_torn_bytes_and_the_split_of_the_recovery_are_shown(run_with: RunWith) -> None:
    """Open, load, replay and their sum; the restart apart from it."""
    code, output = run_with(Verdict(9, 0, 0, 0, 0))
    assert code == 0
    assert "128 bytes are torn" in output
    assert "4.0 ms  2.0 ms  1.5 ms  7.5 ms" in re.sub(r"  +", "  ", output)
    assert "900 ms" in output


def test_json_is_one_object_and_nothing_else(run_with: RunWith) -> None:
    """A program reads stdout, whole."""
    code, output = run_with(Verdict(9, 0, 0, 0, 0), "--json")
    report = json.loads(output)
    assert (code, report["ok"]) == (0, True)
    assert report["recoveries"][0]["total_ms"] == 7.5
    assert report["kills"][0]["torn_bytes"] == 128
