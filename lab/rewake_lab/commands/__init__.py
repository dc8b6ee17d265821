"""The laboratory's commands of `rewake`: argument parsing and printing, nothing else."""

import typer

from rewake_lab.commands.bench import bench
from rewake_lab.commands.reproduce import REPRODUCE_HELP, reproduce

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add them to the command line (an entry point of `rewake.commands`)."""
    app.add_typer(bench, name="bench")
    app.command("reproduce", help=REPRODUCE_HELP)(reproduce)
