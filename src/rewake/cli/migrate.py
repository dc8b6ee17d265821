"""`rewake migrate`: another number of shards for an operator inside Structured Streaming."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rewake.cli.options import AsJson, path_of, print_json


def migrate(
    at: Annotated[
        Path, typer.Argument(parser=path_of, help="The operator's folder, its query stopped.")
    ],
    to: Annotated[Path, typer.Argument(parser=path_of, help="A new folder for the divided state.")],
    shards: Annotated[int, typer.Option(help="How many shards from now on.", min=1)],
    as_json: AsJson = False,
) -> None:
    r"""Divide the state of `rewake.aggregate` among another number of shards.

    The old folder is left as it is.  Start the query again with at=TO, the new number of shards,
    and its old checkpointLocation: it goes on where it stopped, exactly once.

    \b
    Example:
      rewake migrate state/averages state/averages-8 --shards 8
    """
    from rewake.spark.session import local_session  # noqa: PLC0415
    from rewake.spark.structured.migrate import migrate as divide  # noqa: PLC0415

    session = local_session(cores=1, app_name="rewake migrate")
    try:
        moved = divide(session, at, to, shards)
    finally:
        session.stop()
    if as_json:
        print_json(moved._asdict())
        return
    typer.echo(
        f"{moved.windows:,} windows of {moved.old_shards} shards are now in {moved.shards}, after "
        f"batch {moved.batch} of query {moved.query}.\n"
        f"Go on with at={str(to)!r}, shards={moved.shards} and the old checkpointLocation."
    )
