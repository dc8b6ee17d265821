"""`rewake doctor`: what it prints and how it exits."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rewake.cli import doctor as doctor_module
from rewake.cli.app import app
from rewake.cli.findings import Finding, Status

WELL = Finding("numpy", Status.OK, "2.0")
SLOW = Finding("sync", Status.WARN, "50 ms in /a[b]c", "choose another --folder")
NO_JAVA = Finding("java", Status.MISSING, "not found", "install it")
NO_NUMPY = Finding("numpy", Status.MISSING, "not installed", "install it")


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch):
    """Run the doctor on given findings; return (exit code, output)."""

    def run(findings: list[Finding], *options: str) -> tuple[int, str]:
        monkeypatch.setattr(doctor_module, "examine", lambda _: findings)
        result = CliRunner().invoke(app, ["doctor", *options])
        return result.exit_code, result.output

    return run


def test_warnings_alone_exit_with_0(doctor) -> None:
    """Rewake works there."""
    code, output = doctor([WELL, SLOW])
    assert code == 0
    assert "-> choose another --folder" in output
    assert "/a[b]c" in output
    assert "can run here" in output


def test_something_missing_exits_with_3(doctor) -> None:
    """3 means the environment, in every command."""
    code, output = doctor([WELL, NO_JAVA])
    assert code == 3
    assert "-> install it" in output


def test_without_spark_java_is_no_necessity(doctor) -> None:
    """The core needs no Java; it does need numpy."""
    assert doctor([NO_JAVA], "--without-spark")[0] == 0
    assert doctor([NO_NUMPY], "--without-spark")[0] == 3


def test_json_is_all_that_json_prints(doctor) -> None:
    """A program reads stdout, whole."""
    code, output = doctor([WELL, NO_JAVA], "--json")
    report = json.loads(output)
    assert (code, report["ok"]) == (3, False)
    assert report["findings"][1] == {
        "name": "java",
        "status": "missing",
        "seen": "not found",
        "remedy": "install it",
    }


def test_no_color_is_honoured(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """No escape sequences for colours, even when colour is forced by the terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    _, output = doctor([SLOW, NO_JAVA])
    assert "\x1b[33m" not in output
    assert "\x1b[1;31m" not in output


def test_this_machine_is_examined_for_everything(tmp_path: Path) -> None:
    """The real checks run together and leave nothing behind."""
    names = [finding.name for finding in doctor_module.examine(tmp_path)]
    assert {"python", "numpy", "numba", "pyarrow", "pyspark", "java"} <= set(names)
    assert names[-7:] == [
        "cores",
        "memory",
        "disk",
        "sync",
        "privacy",
        "loopback",
        "numba cache",
    ]
    assert list(tmp_path.iterdir()) == []
