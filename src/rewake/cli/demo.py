"""`rewake demo`: kill a process while data flows, let it recover, compare with the oracle."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewake.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from rewake.lab.demo import DemoReport, DemoSettings, Observer, Recovery


def demo(
    tuples: Annotated[int, typer.Option(help="Input tuples.")] = 500_000,
    keys: Annotated[int, typer.Option(help="Different items; a tenth of them is rare.")] = 5_000,
    window: Annotated[int, typer.Option(help="Tuples of an item that are averaged.")] = 10,
    kills: Annotated[int, typer.Option(help="How often the process is killed.")] = 1,
    seed: Annotated[int, typer.Option(help="The input and the moments of the kills.")] = 1,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the log goes; it stays there.", show_default="a new one"),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove the log at the end; it cannot be inspected.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Kill a process while data flows, recover, check every result.

    A worker process averages prices per item over count windows and writes its results and
    footprints to a log.  It is killed with SIGKILL.  A second one recovers from the log and goes
    on.  Then every result is compared with an oracle.  The seed says about where in the stream the
    kill comes; its exact moment is up to the machine.

    Exits with 4 when a result is lost, duplicated, reordered or wrong.
    """
    from rewake.lab.demo import DemoSettings, run_demo  # noqa: PLC0415 (keeps --help fast)

    with _place(folder, clean) as place:
        settings = DemoSettings(place, tuples, keys, window, kills, seed)
        with _observer(settings, quiet=as_json) as observer:
            report = run_demo(settings, observer)
        if as_json:
            typer.echo(json.dumps(_as_object(report, kept=not clean), indent=2))
        else:
            _print_report(report, kept=not clean, litter=place if folder is None else place / "log")
    raise typer.Exit(ExitCode.OK if report.right else ExitCode.INVARIANT_VIOLATED)


@contextmanager
def _place(folder: Path | None, clean: bool) -> Iterator[Path]:
    """The folder of the log: the given one, or a new one that stays only after a whole run."""
    place = folder if folder is not None else Path(tempfile.mkdtemp(prefix="rewake-demo-"))
    try:
        yield place.absolute()
    except BaseException as error:
        if folder is None and not isinstance(error, typer.Exit):
            shutil.rmtree(place, ignore_errors=True)
        raise
    if clean:
        # Of a folder that was given, only what the demo made.
        shutil.rmtree(place if folder is None else place / "log", ignore_errors=True)


@contextmanager
def _observer(settings: "DemoSettings", *, quiet: bool) -> Iterator["Observer"]:
    """Tell the story on stdout as it happens, with a bar on stderr when that is a terminal."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
    )

    from rewake.cli.demo_story import Story  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        yield Story(settings, bar, console=None if quiet else Console(highlight=False))


def _as_object(report: "DemoReport", *, kept: bool) -> dict[str, Any]:
    assert report.verdict is not None
    verdict = asdict(report.verdict)
    return {
        "ok": report.right,
        "tuples": report.settings.tuples,
        "results": report.results,
        "tuples_per_s": round(report.tuples_per_s),
        "kills": [asdict(kill) for kill in report.kills],
        "recoveries": [_rounded(recovery) for recovery in report.recoveries],
        "lost": verdict["lost"],
        "duplicated": verdict["duplicated"],
        "reordered": verdict["reordered"],
        "wrong": verdict["wrong"],
        "broken_promises": report.broken_promises,
        "frames": report.frames,
        "log_bytes": report.log_bytes,
        "seconds": round(report.seconds, 3),
        "seed": report.settings.seed,
        "folder": str(report.settings.folder) if kept else None,
    }


def _rounded(recovery: "Recovery") -> dict[str, Any]:
    facts = asdict(recovery) | {"total_ms": recovery.total_ms}
    return {name: round(fact, 3) if name.endswith("_ms") else fact for name, fact in facts.items()}


def _print_report(report: "DemoReport", *, kept: bool, litter: Path) -> None:
    """What it came to; `litter` is what the demo made and leaves."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if report.recoveries:
        _print_recoveries(console, report.recoveries)
    right = "Nothing was lost, nothing was repeated, and every result is right."
    broken = f"A check failed: this is a bug. Report it with --seed {report.settings.seed}."
    style = "bold green" if report.right else "bold red"
    console.print(f"\n{right if report.right else broken}", style=style)
    if kept:
        # Text without wrapping: a path must stay in one piece to be copied.
        log = report.settings.log
        console.print("\nLook further:")
        for command in (f"log {log}", f"checkpoint {log}"):
            console.print(Text(f"  {_own_command()} inspect {command}"), soft_wrap=True)
        console.print(Text(f"  rm -r {litter}"), soft_wrap=True, style="dim")


def _own_command() -> str:
    """How to call this program again: `make run` calls it by its path, and it is not on PATH."""
    by_path = Path(sys.argv[0]).name == "rewake" and not shutil.which("rewake")
    return os.path.relpath(sys.argv[0]) if by_path else "rewake"


def _print_recoveries(console: "Console", recoveries: list["Recovery"]) -> None:
    """Where the time of each recovery went; the first four columns are milliseconds."""
    from rich.table import Table  # noqa: PLC0415 (keeps --help fast)

    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("recovery", "open", "load", "replay", "total", "windows", "extent", "replayed"):
        table.add_column(name, justify="right")
    table.add_column("restart", justify="right", style="dim")
    for number, each in enumerate(recoveries, 1):
        times = (each.open_ms, each.load_ms, each.replay_ms, each.total_ms)
        sizes = (each.windows, each.extent_records, each.tuples_replayed)
        table.add_row(
            str(number),
            *(f"{time:.1f} ms" for time in times),
            *(f"{size:,}" for size in sizes),
            f"{each.start_ms:,.0f} ms",
        )
    console.print()
    console.print(table)
    console.print(
        "open the log, load the windows from the records of the extent, replay input.\n"
        "The restart of the process (Python, imports, kernels) is not in the total.",
        style="dim",
    )
