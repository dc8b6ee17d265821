"""`rewake bench`: figures measured on this machine, side by side, with their targets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rewake.lab.bench.rows import Row

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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure the log, the aggregate operator and eventual checkpointing."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.lab.bench.core import run  # noqa: PLC0415 (keeps --help fast)

    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), quick=quick)
    if as_json:
        typer.echo(json.dumps({"rows": [row.as_json() for row in rows]}, indent=2))
    else:
        _print_table(rows)
    raise typer.Exit(ExitCode.OK)


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure whole queries as nodes on a local Spark."""
    from dataclasses import replace  # noqa: PLC0415 (keeps --help fast)

    from rich.console import Console  # noqa: PLC0415

    from rewake.lab.bench.engine import QUICK, Scale, run  # noqa: PLC0415

    scale = replace(QUICK if quick else Scale(), minutes=minutes)
    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale)
    if as_json:
        typer.echo(json.dumps({"rows": [row.as_json() for row in rows]}, indent=2))
    else:
        _print_table(rows, "rewake bench engine")
    raise typer.Exit(ExitCode.OK)


_STRUCTURED_HELP = """\
Measure state inside Structured Streaming queries: Rewake's beside Spark's own.

\b
Examples:
  rewake bench structured
  rewake bench structured --quick
  rewake bench structured --json > structured.json

Takes about 12 minutes, with --quick about 3.  Exits with 0 whether or not the targets are met; the
rows say which are.
"""


@bench.command("structured", help=_STRUCTURED_HELP)
def structured(
    folder: Annotated[
        Path, typer.Option(help="Where checkpoints and logs are kept: the disk to measure.")
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure state inside Structured Streaming queries."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.lab.bench.structured import QUICK, Scale, run  # noqa: PLC0415

    scale = QUICK if quick else Scale()
    with Console(stderr=True).status("starting") as status:
        rows = run(folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale)
    if as_json:
        typer.echo(json.dumps({"rows": [row.as_json() for row in rows]}, indent=2))
    else:
        _print_table(rows, "rewake bench structured")
    raise typer.Exit(ExitCode.OK)


def _print_table(rows: list["Row"], title: str = "rewake bench core") -> None:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.table import Table  # noqa: PLC0415 (keeps --help fast)

    table = Table("figure", "value", "unit", "target", "met", "note", title=title)
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        table.add_row(row.name, f"{row.value:,.4g}", row.unit, row.target, met, row.note)
    Console().print(table)
