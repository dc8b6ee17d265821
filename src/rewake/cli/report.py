"""`rewake report`: the page of a run again, from what was kept of it."""

from pathlib import Path
from typing import Annotated

import typer

from rewake.cli.paths import path_of

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
    from rewake.lab.bench.recover_within_report import KIND as PROMISES  # noqa: PLC0415
    from rewake.lab.bench.recover_within_report import promises_page  # noqa: PLC0415
    from rewake.lab.bench.report import KIND as BENCH  # noqa: PLC0415 (keeps --help fast)
    from rewake.lab.bench.report import bench_page  # noqa: PLC0415
    from rewake.lab.drill.kept import KIND as DRILL  # noqa: PLC0415
    from rewake.lab.drill.report import drill_page  # noqa: PLC0415
    from rewake.lab.report import Raw, find_data, require_charts  # noqa: PLC0415
    from rewake.model.errors import UsageError  # noqa: PLC0415

    require_charts()
    pages = {BENCH: bench_page, DRILL: drill_page, PROMISES: promises_page}
    data, page = find_data(folder)
    raw = Raw.read(data)
    if raw.kind not in pages:
        raise UsageError(
            f"{folder} holds a run of kind {raw.kind!r}; this command knows {', '.join(pages)}"
        )
    typer.echo(pages[raw.kind](raw).write(to if to is not None else page))
