"""Arguments and options that several commands take, and JSON as all of them print it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["AsJson", "On", "QueryName", "path_of", "print_json"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
On = Annotated[str, typer.Option(help="spark, or processes (no Spark needed).")]
QueryName = Annotated[
    str,
    typer.Argument(
        help="items, items-sharded, a Python file that defines `query` or `build()`, or with "
        "rewake-lab nexmark:q1 to q8 and q12."
    ),
]


def path_of(text: str | Path) -> Path:
    """The path that an argument names: a parser for typer, which hands over defaults as well."""
    from rewake.stores.places import local_path  # noqa: PLC0415 (keeps --help fast)

    return local_path(text)


def print_json(value: Any) -> None:
    """Print what a program reads; of what JSON has no words for (times, bytes), its text."""
    typer.echo(json.dumps(value, indent=2, default=str))
