"""How the command line ends: exit codes, messages, and what it imports."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
import typer
from typer.testing import CliRunner

from rewake import __version__
from rewake.cli import app as app_module
from rewake.cli.app import app, main
from rewake.model.errors import DamagedLog, InvalidName, StorageFull
from rewake.spark import MissingRequirement


@pytest.fixture
def run_raising(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `main` with a command line that raises; return (exit code, stderr)."""

    def run(error: BaseException) -> tuple[int, str]:
        def fail(**_: object) -> None:
            raise error

        monkeypatch.setattr(app_module, "app", fail)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidName("name '..' leaves its folder"), 2),
        (DamagedLog("segment 3 is damaged at byte 40"), 1),
        (StorageFull("no room in /data"), 1),
        (MissingRequirement("no Java"), 3),
    ],
)
def test_errors_raised_on_purpose_are_one_message(
    run_raising: Callable[[BaseException], tuple[int, str]], error: Exception, code: int
) -> None:
    """No traceback: the message says what happened and what to do."""
    assert run_raising(error) == (code, f"error: {error}\n")


def test_a_broken_invariant_exits_with_4_and_its_traceback(
    run_raising: Callable[[BaseException], tuple[int, str]],
) -> None:
    """It is a bug, and the traceback is what a report of it needs."""
    code, stderr = run_raising(AssertionError("q is negative"))
    assert code == 4
    assert "Traceback" in stderr
    assert "q is negative" in stderr
    assert "this is a bug" in stderr


def test_an_interrupt_exits_with_130(
    run_raising: Callable[[BaseException], tuple[int, str]],
) -> None:
    """As shells expect of SIGINT."""
    assert run_raising(KeyboardInterrupt()) == (130, "interrupted\n")


def rewake(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-c", "from rewake.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_version_is_printed_on_stdout() -> None:
    """The same version as the package's."""
    result = rewake("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"rewake {__version__}\n", "")


def test_the_help_lists_every_command_and_an_example() -> None:
    """And what the exit codes mean."""
    result = rewake("--help")
    assert result.returncode == 0
    for command in app.registered_commands:
        assert str(command.name) in result.stdout
    assert "Examples:" in result.stdout
    assert "3 environment" in result.stdout


@pytest.mark.parametrize("words", [["no-such-command"], ["doctor", "--no-such-option"]])
def test_a_usage_error_exits_with_2_and_nothing_on_stdout(words: list[str]) -> None:
    """Data on stdout, the rest on stderr."""
    result = rewake(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert "no-such" in result.stderr


def test_the_help_imports_nothing_heavy() -> None:
    """numba, pyarrow and pyspark take seconds; a help text must not."""
    code = (
        "import sys, rewake.cli.app\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'pandas', 'duckdb'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_a_real_interrupt_ends_a_command_with_130() -> None:
    """SIGINT while a command works."""
    code = (
        "import os, signal, time, typer\n"
        "from rewake.cli import app as module\n"
        "@module.app.command('wait')\n"
        "def wait():\n"
        "    print('waiting', flush=True)\n"
        "    time.sleep(60)\n"
        "module.main()"
    )
    command = [sys.executable, "-c", code, "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in stderr


def _commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)


@pytest.mark.parametrize("path", list(_commands(typer.main.get_group(app))), ids=" ".join)
def test_help_keeps_the_lines_of_its_examples(path: tuple[str, ...]) -> None:
    """One command a line, and no marks of how help is written."""
    shown = CliRunner().invoke(app, [*path, "--help"]).output
    assert "\\b" not in shown
    examples = [line for line in shown.splitlines() if line.count("rewake ") > 1]
    assert not [line for line in examples if line.lstrip().startswith("rewake ")], examples
