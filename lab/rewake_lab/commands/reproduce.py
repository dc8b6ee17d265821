"""`rewake reproduce`: the papers' experiments on this machine, beside the papers' figures."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import path_of

if TYPE_CHECKING:
    from rewake_lab.reproduce.experiment import Finding, ScaleName
    from rewake_lab.reproduce.raw import Kept
    from rewake_lab.reproduce.registry import Entry

REPRODUCE_HELP = """\
Run the papers' experiments again, and show our figures beside the papers'.

\b
Examples:
  rewake reproduce list                     which experiments there are
  rewake reproduce cec-fig5                 one of them
  rewake reproduce cec-fig6 cec-fig7 --scale full
  rewake reproduce all --folder results     all, raw data and pages in results/
  rewake reproduce pages results            the pages again, without running

Raw data (Parquet), manifest.json and one page per paper are kept in the folder; an interrupted run
keeps what it has.
"""


def reproduce(
    what: Annotated[
        list[str], typer.Argument(help="Names, or `all`; or `list`; or `pages` FOLDER.")
    ],
    scale: Annotated[str, typer.Option(help="small: minutes; full: as in the papers.")] = "small",
    folder: Annotated[
        Path, typer.Option(parser=path_of, help="Where results are kept: on the disk to measure.")
    ] = Path("reproduced"),
    seed: Annotated[int, typer.Option(help="Of the item stream.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program.")] = False,
) -> None:
    """Run the papers' experiments again."""
    if what == ["list"]:
        _list(as_json)
    elif what[0] == "pages":
        _pages(what[1:] or [str(folder)], as_json)
    else:
        _run(what, scale, folder.absolute(), seed, as_json)


def _list(as_json: bool) -> None:
    from rewake_lab.reproduce.registry import ENTRIES  # noqa: PLC0415 (keeps --help fast)

    if as_json:
        from dataclasses import asdict  # noqa: PLC0415

        typer.echo(json.dumps({"experiments": [asdict(entry) for entry in ENTRIES]}, indent=2))
        return
    for entry in ENTRIES:
        typer.echo(f"{entry.name:20} {entry.paper:7} {entry.figure:24} {entry.title}")


def _pages(folders: list[str], as_json: bool) -> None:
    from rewake_lab.reproduce.pages import write_pages  # noqa: PLC0415 (keeps --help fast)

    paths = [str(path) for folder in folders for path in write_pages(path_of(folder))]
    typer.echo(json.dumps({"pages": paths}, indent=2) if as_json else "\n".join(paths))


def _run(names: list[str], scale: str, folder: Path, seed: int, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)

    from rewake.report import require_charts  # noqa: PLC0415
    from rewake_lab.reproduce.pages import write_pages  # noqa: PLC0415
    from rewake_lab.reproduce.registry import chosen  # noqa: PLC0415
    from rewake_lab.reproduce.run import Interrupted, run  # noqa: PLC0415

    entries, size = chosen(names), _scale(scale)
    require_charts()
    command = " ".join(["rewake", *sys.argv[1:]])
    try:
        with Console(stderr=True).status("starting") as status:
            done = run(
                entries, folder, scale=size, seed=seed, command=command, progress=status.update
            )
    except Interrupted as interrupted:
        write_pages(folder)
        sys.stderr.write(f"{interrupted}\n")
        raise typer.Exit(ExitCode.INTERRUPTED) from interrupted
    pages = write_pages(folder)
    _print(entries, done, folder, pages, as_json)
    failed = any(kept.state != "complete" for kept in done)
    raise typer.Exit(ExitCode.FAILURE if failed else ExitCode.OK)


def _scale(name: str) -> "ScaleName":
    from rewake.model.errors import UsageError  # noqa: PLC0415
    from rewake_lab.reproduce.experiment import SCALES  # noqa: PLC0415 (keeps --help fast)

    for each in SCALES:
        if each == name:
            return each
    raise UsageError(f"there is no scale {name!r}; choose one of {', '.join(SCALES)}")


def _print(
    entries: list["Entry"], done: list["Kept"], folder: Path, pages: list[Path], as_json: bool
) -> None:
    from rewake_lab.reproduce.raw import kept_rows  # noqa: PLC0415 (keeps --help fast)

    found: list[dict[str, Any]] = []
    for entry, kept in zip(entries, done, strict=True):
        one: dict[str, Any] = {"name": entry.name, "state": kept.state, "error": kept.error}
        if kept.state == "complete":
            experiment, table = entry.load(), kept_rows(folder, entry.name)
            one["findings"], one["verdict"] = experiment.findings(table), experiment.verdict(table)
        found.append(one | {"scaling": kept.scaling, "figure": entry.figure, "title": entry.title})
    if as_json:
        _print_json(found, pages)
    else:
        _print_tables(found, pages)


def _print_json(found: list[dict[str, Any]], pages: list[Path]) -> None:
    from dataclasses import asdict  # noqa: PLC0415 (keeps --help fast)

    for one in found:
        one["findings"] = [asdict(each) for each in one.get("findings", [])]
    typer.echo(json.dumps({"experiments": found, "pages": [str(path) for path in pages]}, indent=2))


def _print_tables(found: list[dict[str, Any]], pages: list[Path]) -> None:
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    for one in found:
        table = Table(
            "figure", "ours", "the paper's", "unit", title=f"{one['name']}: {one['title']}"
        )
        findings: list[Finding] = one.get("findings", [])
        for each in findings:
            table.add_row(each.what, f"{each.ours:,.4g}", each.paper, each.unit)
        console.print(table)
        console.print(one.get("verdict") or f"{one['state']}: {one['error']}", markup=False)
        console.print(f"Scale: {one['scaling']}.\n", style="dim", markup=False)
    for path in pages:
        typer.echo(path)
