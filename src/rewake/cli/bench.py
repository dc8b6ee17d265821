"""`rewake bench`: figures measured on this machine, side by side, with their targets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rewake.lab.bench.rows import Row
    from rewake.lab.report import Facts

_Report = Annotated[
    Path | None,
    typer.Option(help="Also write a page (HTML), and its data to NAME-data.", dir_okay=False),
]

bench = typer.Typer(
    help="Measure Rewake on this machine: ratios side by side in one run.", no_args_is_help=True
)


@bench.callback()
def _choose() -> None:
    """Measure Rewake on this machine: ratios side by side in one run."""


_CORE_HELP = """\
Measure the log, the aggregate operator and eventual checkpointing.

\b
Examples:
  rewake bench core
  rewake bench core --json > core.json
  rewake bench core --folder /mnt/fast

Exits with 0 whether or not the targets are met; the rows say which are.
"""


@bench.command("core", help=_CORE_HELP)
def core(
    folder: Annotated[
        Path, typer.Option(help="Where the logs of the run are kept: the disk to measure.")
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure the log, the aggregate operator and eventual checkpointing."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.lab.bench.core import run  # noqa: PLC0415 (keeps --help fast)

    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), quick=quick)
    _finish(rows, "rewake bench core", facts, report, as_json=as_json)


_ENGINE_HELP = """\
Measure whole queries as nodes on a local Spark, beside Spark's own stateful aggregation.

\b
Examples:
  rewake bench engine
  rewake bench engine --minutes 10     also memory, with a kill every 30 seconds
  rewake bench engine --json > engine.json

Exits with 0 whether or not the targets are met; the rows say which are.
"""


@bench.command("engine", help=_ENGINE_HELP)
def engine(
    folder: Annotated[
        Path, typer.Option(help="Where the logs of the run are kept: the disk to measure.")
    ] = Path(),
    minutes: Annotated[float, typer.Option(help="Length of the run that watches memory.")] = 0.0,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure whole queries as nodes on a local Spark."""
    from dataclasses import replace  # noqa: PLC0415 (keeps --help fast)

    from rich.console import Console  # noqa: PLC0415

    from rewake.lab.bench.engine import QUICK, Scale, run  # noqa: PLC0415

    scale = replace(QUICK if quick else Scale(), minutes=minutes)
    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale)
    _finish(rows, "rewake bench engine", facts, report, as_json=as_json)


_STRUCTURED_HELP = """\
Measure state inside Structured Streaming queries: Rewake's beside Spark's own.

\b
Examples:
  rewake bench structured
  rewake bench structured --quick
  rewake bench structured --json > structured.json

Takes 11 to 15 minutes, with --quick a few.  Exits with 0 whether or not the targets are met; the
rows say which are.
"""


@bench.command("structured", help=_STRUCTURED_HELP)
def structured(
    folder: Annotated[
        Path, typer.Option(help="Where checkpoints and logs are kept: the disk to measure.")
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure state inside Structured Streaming queries."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.lab.bench.structured import QUICK, Scale, run  # noqa: PLC0415

    scale = QUICK if quick else Scale()
    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale)
    _finish(rows, "rewake bench structured", facts, report, as_json=as_json)


def _facts(report: Path | None) -> "Facts":
    """Where it is measured, before the benchmark itself loads the machine."""
    from rewake.lab.report import facts_now, require_charts  # noqa: PLC0415 (keeps --help fast)

    if report is not None:
        require_charts()
    return facts_now()


def _finish(
    rows: list["Row"], title: str, facts: "Facts", report: Path | None, *, as_json: bool
) -> None:
    """Show the rows in every way that was asked for; targets do not change the exit code."""
    if as_json:
        typer.echo(json.dumps({"rows": [row.as_json() for row in rows]}, indent=2))
    else:
        _print_table(rows, title)
    if report is not None:
        from rewake.cli.drill_run import command_line  # noqa: PLC0415 (keeps --help fast)
        from rewake.lab.bench.report import write_bench_report  # noqa: PLC0415

        path = write_bench_report(rows, report.absolute(), title, command_line(), facts)
        typer.echo(f"report: {path}", err=True)
    raise typer.Exit(ExitCode.OK)


def _print_table(rows: list["Row"], title: str) -> None:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.table import Table  # noqa: PLC0415 (keeps --help fast)

    table = Table("figure", title=title, box=None, pad_edge=False, title_justify="left")
    table.add_column("value", justify="right")
    for name in ("unit", "target", "met"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        # Beneath the figure, where there is room for it.
        figure = f"{row.name}\n[dim]{row.note}[/]" if row.note else row.name
        table.add_row(figure, f"{row.value:,.4g}", row.unit, row.target, met)
    Console().print(table)
