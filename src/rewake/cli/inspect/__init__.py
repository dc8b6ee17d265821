"""`rewake inspect`: what a log holds, and the eventual checkpoint in it.  Read-only, always."""

from pathlib import Path
from typing import Annotated

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import AsJson, path_of, print_json
from rewake.model.errors import UsageError

__all__ = ["inspect"]

inspect = typer.Typer(
    help="Look into a log and its checkpoint; nothing is changed.",
    no_args_is_help=True,
)

Paths = Annotated[
    list[Path],
    typer.Argument(
        parser=path_of, metavar="PATH", help="The log's folder; of a striped log, all of them."
    ),
]
_LAST = 20


@inspect.command("log")
def log(
    paths: Paths,
    last: Annotated[
        int | None, typer.Option(metavar="N", help="Show the last N frames; 20 unless told.")
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="SEQ", help="Show 20 frames from this sequence on."),
    ] = None,
    through: Annotated[
        int | None,
        typer.Option("--to", metavar="SEQ", help="With --from: show all up to this."),
    ] = None,
    sections: Annotated[
        bool, typer.Option("--sections", help="Show what is in the frames, results decoded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every checksum of a log and show its frames.

    Exits with 1 when the log is damaged: the report says where, what can be saved and what to do.
    """
    from rewake.cli.inspect.log import log_object, print_log  # noqa: PLC0415 (keeps --help fast)
    from rewake.inspection.log import Selection, inspect_log  # noqa: PLC0415

    if last is not None and first is not None:
        raise UsageError("give --last or --from, not both")
    selection = Selection(_LAST if last is None else last, first, through)
    found = inspect_log(paths, selection, sections=sections)
    if as_json:
        print_json(log_object(found))
    else:
        print_log(found)
    raise typer.Exit(ExitCode.OK if found.report.intact else ExitCode.FAILURE)


@inspect.command("checkpoint")
def checkpoint(
    paths: Paths,
    windows: Annotated[int, typer.Option(min=0, help="Show so many of the oldest windows.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show what a recovery would load and replay."""
    from rewake.cli.inspect.checkpoint import (  # noqa: PLC0415 (keeps --help fast)
        checkpoint_object,
        print_checkpoint,
    )
    from rewake.inspection.checkpoint import inspect_checkpoint  # noqa: PLC0415

    found = inspect_checkpoint(paths, windows)
    if as_json:
        print_json(checkpoint_object(found))
    else:
        print_checkpoint(found)
