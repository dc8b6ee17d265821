"""`rewake explain`: what a query would run, without running it."""

from pathlib import Path
from typing import Annotated

import typer

from rewake.model.errors import UsageError


def explain(
    query: Annotated[
        str, typer.Argument(help="items, items-sharded, or a Python file that defines `query`.")
    ],
    svg: Annotated[
        Path | None, typer.Option(help="Also write a picture to this file.", show_default=False)
    ] = None,
) -> None:
    r"""Tell what a query would run: fragments, nodes, what is logged and why, what is guaranteed.

    \b
    Examples:
      rewake explain items
      rewake explain my_query.py --svg my_query.svg
    """
    from rewake.lab.drill.files import load_query  # noqa: PLC0415 (keeps --help fast)
    from rewake.lab.drill.queries import built_in  # noqa: PLC0415

    found = load_query(Path(query)) if query.endswith(".py") else built_in(query).build()
    typer.echo(found.explain(), nl=False)
    if svg is not None:
        try:
            svg.write_text(found.picture(), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {svg}: {error.strerror}") from error
        typer.echo(f"picture: {svg}", err=True)
