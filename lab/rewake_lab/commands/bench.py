"""`rewake bench`: figures measured on this machine, side by side, with their targets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import path_of

if TYPE_CHECKING:
    from rewake.report import Facts
    from rewake_lab.bench.recover_within.measure import Evidence
    from rewake_lab.bench.rows import Measured, Row, Shown

_Report = Annotated[
    Path | None,
    typer.Option(parser=path_of, help="Also write a page (HTML), and its data to NAME-data."),
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

Exits with 0 whether or not the targets are met; the rows say which are.  Ctrl-C ends it early, with
130: what is complete is shown and kept, and what is missing is said.
"""


@bench.command("core", help=_CORE_HELP)
def core(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where the logs of the run are kept: the disk to measure."
        ),
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure the log, the aggregate operator and eventual checkpointing."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake_lab.bench.core import run  # noqa: PLC0415 (keeps --help fast)

    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        found = run(
            folder.absolute(), lambda name: status.update(f"measuring: {name}"), quick=quick
        )
    _finish(found, "rewake bench core", facts, report, as_json=as_json)


_ENGINE_HELP = """\
Measure whole queries as nodes on a local Spark, beside Spark's own stateful aggregation.

\b
Examples:
  rewake bench engine
  rewake bench engine --minutes 10     also memory, with a kill every 30 seconds
  rewake bench engine --json > engine.json

Exits with 0 whether or not the targets are met; the rows say which are.  Ctrl-C ends it early, with
130: what is complete is shown and kept, and what is missing is said.
"""


@bench.command("engine", help=_ENGINE_HELP)
def engine(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where the logs of the run are kept: the disk to measure."
        ),
    ] = Path(),
    minutes: Annotated[float, typer.Option(help="Length of the run that watches memory.")] = 0.0,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure whole queries as nodes on a local Spark."""
    from dataclasses import replace  # noqa: PLC0415 (keeps --help fast)

    from rich.console import Console  # noqa: PLC0415

    from rewake_lab.bench.engine import QUICK, Scale, about, run  # noqa: PLC0415

    scale = replace(QUICK if quick else Scale(), minutes=minutes)
    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        found = run(
            folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale
        )
    _finish(found, "rewake bench engine", facts, report, as_json=as_json, about=about())


_OPERATORS_HELP = """\
Measure every operator alone: tuples a second, bytes of a part, snapshots and restores.

\b
Examples:
  rewake bench operators
  rewake bench operators --only join --only union
  rewake bench operators --json > operators.json

Takes 3 to 5 minutes, with --quick one or two.  Exits with 0 whether or not the targets are met; the
rows say which are.  Ctrl-C ends it early, with 130: what is complete is shown and kept, and what is
missing is said.
"""


@bench.command("operators", help=_OPERATORS_HELP)
def operators(
    folder: Annotated[
        Path, typer.Option(parser=path_of, help="Where the logs are kept: the disk to measure.")
    ] = Path(),
    only: Annotated[
        list[str] | None, typer.Option(help="Operators whose names start so; may be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure every operator alone."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake_lab.bench.operators.measure import run  # noqa: PLC0415

    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        found = run(
            folder.absolute(),
            lambda name: status.update(f"measuring: {name}"),
            quick=quick,
            only=only or (),
        )
    _finish(found, "rewake bench operators", facts, report, as_json=as_json)


_STRUCTURED_HELP = """\
Measure state inside Structured Streaming queries: Rewake's beside Spark's own.

\b
Examples:
  rewake bench structured
  rewake bench structured --quick
  rewake bench structured --json > structured.json

Takes some 30 minutes, with --quick a few.  Exits with 0 whether or not the targets are met; the
rows say which are.  Ctrl-C ends it early, with 130: what is complete is shown and kept, and what is
missing is said.
"""


@bench.command("structured", help=_STRUCTURED_HELP)
def structured(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where checkpoints and logs are kept: the disk to measure."
        ),
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure state inside Structured Streaming queries."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake_lab.bench.structured.measure import QUICK, Scale, run  # noqa: PLC0415

    scale = QUICK if quick else Scale()
    facts = _facts(report)
    with Console(stderr=True).status("starting") as status:
        found = run(
            folder.absolute(), lambda name: status.update(f"measuring: {name}"), scale=scale
        )
    _finish(found, "rewake bench structured", facts, report, as_json=as_json)


_RECOVER_WITHIN_HELP = """\
Measure whether promised recovery times are kept, and at what price: over 200 kills.

\b
Each configuration is a query that runs while the node that holds its windows is killed again and
again: targets of 0.2, 1 and 5 s; uniform, Zipf and bursty keys; 1,000 to 1,000,000 windows.

\b
Examples:
  rewake bench recover-within
  rewake bench recover-within --quick
  rewake bench recover-within --report promises.html     every drill in promises-data
  rewake bench recover-within --json > promises.json
  rewake bench recover-within --beside 0.5               beside one that takes half a processor

Takes 15 to 20 minutes, with --quick 3.  Ctrl-C ends it early: what is complete is shown and kept.
Exits with 0 whether or not the targets are met, with 4 when a result is wrong.
"""


@bench.command("recover-within", help=_RECOVER_WITHIN_HELP)
def recover_within(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where the logs of the runs are kept: the disk to measure."
        ),
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer kills, rougher figures.")] = False,
    beside: Annotated[
        float,
        typer.Option(
            help="Measure beside a process that takes this share of a processor.", min=0, max=1
        ),
    ] = 0,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure whether promised recovery times are kept."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.cli.drill_run import command_line  # noqa: PLC0415
    from rewake_lab.bench.beside import taking  # noqa: PLC0415
    from rewake_lab.bench.recover_within.measure import FULL, QUICK, run  # noqa: PLC0415
    from rewake_lab.bench.recover_within.report import keep, show  # noqa: PLC0415
    from rewake_lab.bench.recover_within.runs import WrongResults  # noqa: PLC0415

    facts, path = _facts(report), None if report is None else report.absolute()
    with Console(stderr=True).status("starting") as status, taking(beside):
        try:
            evidence = run(
                folder.absolute(),
                lambda name: status.update(f"measuring: {name}"),
                scale=QUICK if quick else FULL,
                on_run=lambda so_far: keep(so_far, path, command_line(), facts),
            )
        except WrongResults as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(ExitCode.INVARIANT_VIOLATED) from error
    if path is not None:
        typer.echo(f"report: {show(evidence, path, command_line(), facts)}", err=True)
    _print_evidence(evidence, as_json=as_json)
    raise typer.Exit(ExitCode.INTERRUPTED if evidence.missing else ExitCode.OK)


def _print_evidence(evidence: "Evidence", *, as_json: bool) -> None:
    rows = evidence.rows()
    if as_json:
        said = {"rows": [row.as_json() for row in rows], "missing": evidence.missing}
        typer.echo(json.dumps(said, indent=2))
    else:
        _print_table(rows, "rewake bench recover-within")
    _say_missing(evidence.missing)


_PEERS_HELP = """\
Measure the same work on Rewake, Spark's own state, Apache Flink and Bytewax, side by side.

\b
Count windows of ten, running averages and 10-second windows per item, 100,000 items: throughput,
bytes written for fault tolerance, p99 latency at half of that throughput, and the time from SIGKILL
of everything to the next right result.

\b
Examples:
  rewake bench peers --setup            install the others, in environments of their own
  rewake bench peers
  rewake bench peers --quick            count windows alone, shorter runs
  rewake bench peers --peer flink --peer nodes --workload time
  rewake bench peers --json > peers.json

Takes up to 30 minutes, with --quick up to 5.  One that is not installed is left out, and said so.
An interrupted run shows what it has and what is missing, and exits with 130.  Otherwise exits with
0 whether or not the targets are met; the rows say which are.
"""


@bench.command("peers", help=_PEERS_HELP)
def peers(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where checkpoints and logs are kept: the disk to measure."
        ),
    ] = Path(),
    setup: Annotated[bool, typer.Option("--setup", help="Install the others, and stop.")] = False,
    venvs: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, help="Where the others are installed.", show_default="a cache folder"
        ),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Only those whose name has this in it.")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Only this one: count, running or time.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
    report: _Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Measure the same work on Rewake and on others."""
    from rewake_lab.commands.bench_peers import run_peers, set_up_peers  # noqa: PLC0415 (keeps --help fast)

    if setup:
        set_up_peers(venvs)
        return
    facts = _facts(report)
    outcome = run_peers(folder.absolute(), venvs, peer or [], workload or [], quick=quick)
    code = ExitCode.INTERRUPTED if outcome.interrupted else ExitCode.OK
    if as_json:
        typer.echo(json.dumps(outcome.as_json(), indent=2))
    else:
        from rewake_lab.commands.bench_peers import print_peers  # noqa: PLC0415

        _print_table(outcome.rows(), "rewake bench peers")
        print_peers(outcome)
    if report is not None:
        from rewake_lab.bench.peers.table import about  # noqa: PLC0415

        _write_page(outcome.rows(), report, "rewake bench peers", facts, about(outcome))
    raise typer.Exit(code)


def _facts(report: Path | None) -> "Facts":
    """Where it is measured, before the benchmark itself loads the machine."""
    from rewake.report import facts_now, require_charts  # noqa: PLC0415 (keeps --help fast)

    if report is not None:
        require_charts()
    return facts_now()


def _finish(
    found: "Measured",
    title: str,
    facts: "Facts",
    report: Path | None,
    *,
    as_json: bool,
    about: dict[str, Any] | None = None,
) -> None:
    """Show the rows in every way that was asked for; targets do not change the exit code."""
    absent = found.missing + found.failed
    if as_json:
        said = {"rows": [row.as_json() for row in found.rows], "missing": absent}
        typer.echo(json.dumps(said, indent=2))
    else:
        _print_table(found.rows, title)
    if report is not None:
        said_of_it = {"missing": absent, **(about or {})}
        _write_page(found.rows, report, title, facts, said_of_it, found.shown)
    _say_missing(found.missing)
    for each in found.failed:
        typer.echo(f"failed; not measured: {each}", err=True)
    ended = ExitCode.FAILURE if found.failed else ExitCode.OK
    raise typer.Exit(ExitCode.INTERRUPTED if found.missing else ended)


def _say_missing(missing: list[str]) -> None:
    for each in missing:
        typer.echo(f"interrupted; not measured: {each}", err=True)


def _write_page(
    rows: list["Row"],
    report: Path,
    title: str,
    facts: "Facts",
    about: dict[str, Any],
    shown: "Shown | None" = None,
) -> None:
    from rewake.cli.drill_run import command_line  # noqa: PLC0415 (keeps --help fast)
    from rewake_lab.bench.report import write_bench_report  # noqa: PLC0415

    page = report.absolute()
    path = write_bench_report(rows, page, title, command_line(), facts, about, shown)
    typer.echo(f"report: {path}", err=True)


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
