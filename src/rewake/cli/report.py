"""`rewake report`: the page of a run again, from what was kept of it."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from rewake.cli.options import path_of

REPORT_HELP = """\
Make the page of a run again from the data beside it, without running.

\b
FOLDER is that of a demo or drill, or the data folder of a page: NAME-data beside NAME.html.

\b
Examples:
  rewake report /tmp/rewake-demo-y2i2ab7l
  rewake report core-data --to core.html
"""


def report(
    folder: Annotated[
        Path, typer.Argument(parser=path_of, help="The folder of the run, or of its data.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(parser=path_of, help="The file to write.", show_default="where the page was"),
    ] = None,
) -> None:
    """Make the page of a run again."""
    from rewake.drill.kept import KIND as DRILL  # noqa: PLC0415 (keeps --help fast)
    from rewake.drill.report import drill_page  # noqa: PLC0415
    from rewake.model.errors import UsageError  # noqa: PLC0415
    from rewake.report import Raw, find_data, require_charts  # noqa: PLC0415

    require_charts()
    # Other packages bring pages of their own; the name of each is the kind that it shows.
    brought = {each.name: each for each in entry_points(group="rewake.reports")}
    data, page = find_data(folder)
    raw = Raw.read(data)
    if raw.kind != DRILL and raw.kind not in brought:
        known = ", ".join((DRILL, *brought))
        raise UsageError(
            f"{folder} holds a run of kind {raw.kind!r}; this command knows {known} "
            "(runs of benchmarks need rewake-lab)"
        )
    show = drill_page if raw.kind == DRILL else brought[raw.kind].load()
    typer.echo(show(raw).write(to if to is not None else page))
