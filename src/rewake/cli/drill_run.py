"""What `rewake demo` and `rewake drill` share: a folder, a launcher, the run, the report."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewake.cli.drill_view import DrillView, drill_view

if TYPE_CHECKING:
    from rewake.lab.drill.queries import ItemDrill
    from rewake.lab.drill.when import Strike
    from rewake.net.kill_points import Fault
    from rewake.net.processes import Launcher


@contextmanager
def place_for(folder: Path | None, prefix: str) -> Iterator[Path]:
    """The given folder, or a new one that is removed when the run does not end well."""
    place = folder if folder is not None else Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield place.absolute()
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise


@contextmanager
def launcher_for(on: str, nodes: int, view: DrillView) -> Iterator[Launcher]:
    """Something that runs nodes: a local Spark, or plain processes."""
    if on == "processes":
        from rewake.net.processes import Processes  # noqa: PLC0415 (slow to import)

        yield Processes()
        return
    from rewake.spark.job import SparkNodes  # noqa: PLC0415
    from rewake.spark.session import local_session  # noqa: PLC0415

    view.say("starting Spark")
    session = local_session(nodes=nodes)
    try:
        yield SparkNodes(session)
    finally:
        session.stop()


def run_once(
    drill: ItemDrill,
    place: Path,
    on: str,
    *,
    strikes: Sequence[Strike],
    faults: Sequence[Fault],
    quiet: bool,
) -> dict[str, Any]:
    """One run with its report; the figures."""
    from rewake.lab.drill.report import write_report  # noqa: PLC0415 (slow to import)
    from rewake.lab.drill.run import run_drill  # noqa: PLC0415
    from rewake.lab.drill.summary import summary  # noqa: PLC0415

    nodes = len(drill.build().plan().nodes)
    with drill_view(drill.tuples, quiet=quiet) as view:
        with launcher_for(on, nodes, view) as launcher:
            if drill.rate is not None:
                drill = replace(drill, gun=str(place / "first-tuple-due-ms"))
            view.say(f"running {drill.name!r} on {nodes} nodes; logs in {place}")
            result = run_drill(
                drill, place / "query", launcher,
                strikes=strikes, faults=faults, on_progress=view.progress,
            )  # fmt: skip
        view.say("comparing with the oracle")
        report = write_report(result, place / "report.html")
    return summary(result, str(report))
