"""`rewake bench peers`: choosing who is measured, and showing how they compare."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from rewake.model.errors import UsageError
from rewake_lab.bench.peers.contenders import chosen, contenders
from rewake_lab.bench.peers.job import Workload
from rewake_lab.bench.peers.lives import QUICK, Scale
from rewake_lab.bench.peers.run import run
from rewake_lab.bench.peers.setup import Places, set_up
from rewake_lab.bench.peers.table import HEAD, NOTE, lines

if TYPE_CHECKING:
    from rewake_lab.bench.peers.run import Outcome

# A quick run is not long enough for all.
_QUICK_WORKLOADS = (Workload.COUNT,)


def set_up_peers(venvs: Path | None) -> None:
    """Install the others; a line for each."""
    with Console(stderr=True).status("starting") as status:
        said = set_up(Places(venvs), status.update)
    for line in said:
        typer.echo(line)


def run_peers(
    folder: Path, venvs: Path | None, names: list[str], workloads: list[str], *, quick: bool
) -> "Outcome":
    """Measure those that are asked for."""
    wanted = _workloads(workloads) or list(_QUICK_WORKLOADS if quick else Workload)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; make it, or give another --folder")
    with Console(stderr=True).status("looking who is there") as status:
        everybody = contenders(Places(venvs))
        found = chosen(everybody, names)
        if not found:
            known = ", ".join(each.name for each in everybody)
            raise UsageError(f"nobody is called {' or '.join(names)}; there are {known}")
        return run(
            folder,
            lambda name: status.update(f"measuring: {name}"),
            found,
            wanted,
            scale=QUICK if quick else Scale(),
        )


def _workloads(names: list[str]) -> list[Workload]:
    known = ", ".join(Workload)
    for name in names:
        if name not in set(Workload):
            raise UsageError(f"there is no workload {name!r}; there are {known}")
    return [each for each in Workload if each in names]


def print_peers(outcome: "Outcome") -> None:
    """A table for each workload, then the settings, then what is missing."""
    console = Console()
    for workload in outcome.workloads():
        table = Table(title=workload.label, box=None, pad_edge=False, title_justify="left")
        for place, name in enumerate(HEAD):
            table.add_column(name, justify="right" if place else "left")
        for cells in lines(outcome, workload):
            table.add_row(*cells)
        console.print()
        console.print(table)
        for sentence in outcome.behind(workload):
            console.print(sentence, style="dim", markup=False, highlight=False)
    if outcome.figures:
        console.print(NOTE, style="dim", markup=False)
    console.print("\nSettings")
    for name, settings in outcome.settings.items():
        console.print(f"  {name}: {settings}", markup=False, highlight=False)
    if outcome.missing:
        console.print("\nNot measured")
        for sentence in outcome.missing:
            console.print(f"  {sentence}", markup=False, highlight=False)
