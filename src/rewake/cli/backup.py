"""`rewake backup` and `rewake restore`: all parts of a query as they were at one time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.options import AsJson, path_of, print_json

if TYPE_CHECKING:
    from rewake.net.queries.backup import Backup


def backup(
    folder: Annotated[
        Path, typer.Argument(parser=path_of, help="The folder of a query, running or stopped.")
    ],
    to: Annotated[Path, typer.Argument(parser=path_of, help="A new folder for the copy.")],
    as_json: AsJson = False,
) -> None:
    r"""Copy a query's folder as it is at one moment, without disturbing the query.

    Every log of the copy is read back and verified, and a manifest has the checksum of every file.

    \b
    Example:
      rewake backup state/orders backups/orders-monday
    """
    from rewake.net.queries.backup import make_backup  # noqa: PLC0415

    made = make_backup(folder, to, _quiet if as_json else _say)
    _print(made, as_json)
    if not as_json:
        typer.echo(f"Bring it back with: rewake restore {to} NEW_FOLDER")


def restore(
    copy: Annotated[
        Path,
        typer.Argument(parser=path_of, help="What `rewake backup` made.", metavar="FROM"),
    ],
    to: Annotated[Path, typer.Argument(parser=path_of, help="A new folder for the query.")],
    as_json: AsJson = False,
) -> None:
    r"""Bring a backup back: the query that is started in TO goes on from there.

    Every file is compared with the manifest; a folder that is not empty is not touched.

    \b
    Example:
      rewake restore backups/orders-monday state/orders-again
    """
    from rewake.net.queries.restore import restore_backup  # noqa: PLC0415

    _print(restore_backup(copy, to, _quiet), as_json)


def _say(node: str, size: int) -> None:
    typer.echo(f"copied the log of {node}, {size:,} bytes", err=True)


def _quiet(_name: str, _size: int) -> None:
    pass


def _print(made: Backup, as_json: bool) -> None:
    if as_json:
        print_json(asdict(made))
        return
    typer.echo(
        f"query {made.query!r} as of {made.made_at}: {len(made.logs)} logs, {made.files} files, "
        f"{made.bytes:,} bytes, all verified."
    )
    if made.sinks:
        typer.echo(
            f"Not in it is what sinks wrote outside of the folder ({', '.join(made.sinks)}): it "
            f"must be as of {made.made_at}, or older.  A newer one is refused."
        )
