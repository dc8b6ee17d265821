"""Commands that other packages bring, the laboratory's among them.

A package names in the entry points `rewake.commands` a function that adds its commands to ours.
The laboratory (`rewake-lab`: benchmarks and the papers' experiments) is such a package; where it is
not installed, its commands say so.
"""

from importlib.metadata import entry_points

import typer

from rewake.model.errors import UsageError

__all__ = ["add_commands_of_others"]

_OF_THE_LABORATORY = ("bench", "reproduce")


def add_commands_of_others(app: typer.Typer) -> None:
    """Add what is installed, and for what is not, a word on how to get it."""
    for each in entry_points(group="rewake.commands"):
        each.load()(app)
    there = {each.name for each in app.registered_commands}
    there |= {each.name for each in app.registered_groups}
    for name in _OF_THE_LABORATORY:
        if name not in there:
            _add_absent(app, name)


def _add_absent(app: typer.Typer, name: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(name, help="Of the laboratory, which is not installed.", context_settings=settings)
    def absent() -> None:
        raise UsageError(
            f"`rewake {name}` belongs to the laboratory, which is not installed here; "
            "pip install rewake-lab, or in a checkout of Rewake: pip install -e lab"
        )
