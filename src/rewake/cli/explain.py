"""`rewake explain`: what a query would run, without running it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rewake.cli.options import QueryName, path_of
from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from rewake.graph.query import Query


def _check_owner(query: "Query", folder: Path) -> None:
    """Raise UsageError when the folder is another query's: its figures would be that one's."""
    from rewake.node.coordinator.state import (  # noqa: PLC0415 (keeps --help fast)
        STATE_FILE,
        check_folder,
        decode_state,
    )

    try:
        data = (folder / STATE_FILE).read_bytes()
    except FileNotFoundError:
        return  # nothing has run there yet
    check_folder(query.plan(), decode_state(data), str(folder))


_Picture = Annotated[
    Path | None,
    typer.Option(
        parser=path_of,
        help="Also draw it: write a Mermaid flowchart to this file.",
        show_default=False,
    ),
]
_Folder = Annotated[
    Path | None,
    typer.Option(
        parser=path_of,
        help="The folder in which the query runs: how promises stand there, and how many "
        "tuples came too late.",
    ),
]
_RecoverWithin = Annotated[
    str | None,
    typer.Option(help="Of a built-in query: how long a crash may cost beyond a restart."),
]
_Servers = Annotated[
    int | None,
    typer.Option(
        help="Which nodes so many processes or Spark tasks would share.",
        min=1,
        show_default="what the query says; else one each",
    ),
]


def explain(
    query: QueryName,
    picture: _Picture = None,
    folder: _Folder = None,
    recover_within: _RecoverWithin = None,
    servers: _Servers = None,
) -> None:
    r"""Tell what a query would run: fragments, nodes, what is logged and why, what is guaranteed.

    \b
    Examples:
      rewake explain items
      rewake explain nexmark:q5
      rewake explain my_query.py --picture my_query.mmd
      rewake explain items --recover-within 1s
      rewake explain items-sharded --servers 2
      rewake explain my_query.py --folder state/averages

    \b
    Where recover_within is promised, it also tells what a crash would cost: q (records to load), u
    (tuples to replay), T (the input position from which), the rates, the prediction and the margin.
    Of a query that has not run, what the promise allows, by rates measured on this machine (1 s).
    """
    from rewake.drill.files import load_query  # noqa: PLC0415 (keeps --help fast)
    from rewake.drill.lateness import late_in_folder  # noqa: PLC0415
    from rewake.drill.promise import explained  # noqa: PLC0415
    from rewake.drill.queries import built_in  # noqa: PLC0415

    if query.endswith(".py") and recover_within is not None:
        raise UsageError(f"{query} says itself what it promises; leave out --recover-within")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give the one that the query was started in")
    found = (
        load_query(path_of(query))
        if query.endswith(".py")
        else built_in(query, recover_within=recover_within).build()
    )
    found.servers = servers or found.servers
    if folder is not None:
        _check_owner(found, folder)
    typer.echo(found.explain(), nl=False)
    promises = explained(found.plan(), folder)
    for told in (promises, late_in_folder(found.plan(), folder)):
        if told:
            typer.echo("\n" + "\n".join(told))
    if picture is not None:
        try:
            picture.write_text(found.picture(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {picture}: {error.strerror}") from error
        typer.echo(f"picture: {picture}", err=True)
