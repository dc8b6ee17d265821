"""`rewake doctor`: what this machine has, what it lacks and what to do."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import AsJson, path_of, print_json

if TYPE_CHECKING:
    from rewake.cli.findings import Finding

_OF_SPARK = frozenset({"pyspark", "pandas", "java"})
_STYLES = {"ok": "green", "warn": "yellow", "missing": "bold red"}


def doctor(
    folder: Annotated[
        Path,
        typer.Option(
            parser=path_of, help="Where logs will be kept: its room and speed are measured."
        ),
    ] = Path(),
    without_spark: Annotated[
        bool, typer.Option("--without-spark", help="Spark and Java are welcome, not necessary.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what this machine has, what it lacks and what to do.

    Exits with 0 when everything necessary is there (warnings included), else with 3.
    """
    findings = [
        _demote(finding) if without_spark and finding.name in _OF_SPARK else finding
        for finding in examine(folder.absolute())
    ]
    well = all(finding.status != "missing" for finding in findings)
    if as_json:
        print_json({"ok": well, "findings": [asdict(finding) for finding in findings]})
    else:
        _print_table(findings, well)
    raise typer.Exit(ExitCode.OK if well else ExitCode.ENVIRONMENT)


def examine(folder: Path) -> list["Finding"]:
    """Look at everything, in the order a person would mend it."""
    from rewake.cli import findings  # noqa: PLC0415 (keeps --help fast)

    return [
        findings.python_version(),
        *findings.packages(),
        *findings.spark_home(os.environ),
        findings.java(os.environ),
        findings.cores(),
        findings.memory(),
        findings.free_disk(folder),
        findings.sync_cost(folder),
        findings.privacy(folder),
        findings.loopback(),
        findings.numba_cache(os.environ),
    ]


def _demote(finding: "Finding") -> "Finding":
    """Turn what is missing into a warning."""
    from rewake.cli.findings import Status  # noqa: PLC0415 (keeps --help fast)

    return replace(finding, status=Status.WARN) if finding.status == "missing" else finding


def _print_table(findings: list["Finding"], well: bool) -> None:
    """Print for people: one row for each finding, then what it comes to."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Text, never markup: a path may hold brackets.  rich honours NO_COLOR by itself.
    table = Table(box=None, pad_edge=False)
    for header in ("what", "status", "seen"):
        table.add_column(header, overflow="fold")
    for finding in findings:
        style = _STYLES[finding.status]
        table.add_row(finding.name, Text(finding.status, style), Text(finding.seen))
        if finding.remedy:
            table.add_row("", "", Text(f"-> {finding.remedy}", style))
    console = Console()
    console.print(table)
    verdict = "Rewake can run here." if well else "Rewake cannot run here yet: see the arrows."
    console.print(f"\n{verdict}", style=_STYLES["ok" if well else "missing"], highlight=False)
