"""What `rewake demo` and `rewake drill` share: a folder, a launcher, the run, the report."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewake.cli.drill_view import DrillView, drill_view
from rewake.model.errors import UsageError

if TYPE_CHECKING:
    from rewake.drill.drill import Drill
    from rewake.drill.run import DrillResult
    from rewake.drill.when import Strike
    from rewake.net.kill_points import Fault
    from rewake.net.queries.processes import Launcher

PLACES = ("spark", "processes")


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


def check_place(on: str) -> None:
    """Refuse a kind of place that there is not, before anything is started."""
    if on not in PLACES:
        raise UsageError(f"nodes cannot run on {on!r}; choose one of {', '.join(PLACES)}")


@contextmanager
def launchers_for(on: str, servers: int, view: DrillView) -> Iterator[Callable[[], Launcher]]:
    """What makes launchers, one for each run: on a local Spark, or of plain processes."""
    if on == "processes":
        from rewake.net.queries.processes import Processes  # noqa: PLC0415 (slow to import)

        yield Processes
        return
    from rewake.spark.job import SparkNodes  # noqa: PLC0415
    from rewake.spark.session import local_session  # noqa: PLC0415

    view.say("starting Spark")
    session = local_session(nodes=servers)
    try:
        yield lambda: SparkNodes(session)
    finally:
        session.stop()


def command_line() -> str:
    """The command that runs now, as it can be given to a shell again."""
    return shlex.join(["rewake", *sys.argv[1:]])


def run_once(
    drill: Drill,
    place: Path,
    on: str,
    *,
    wanted: Sequence[Strike | Fault],
    quiet: bool,
    title: str = "Drill",
    servers: int | None = None,
) -> dict[str, Any]:
    """One run with its report; the figures."""
    from rewake.drill.report import write_report  # noqa: PLC0415 (slow to import)
    from rewake.drill.run import run_drill  # noqa: PLC0415
    from rewake.drill.summary import summary  # noqa: PLC0415
    from rewake.drill.when import Strike, check_nodes  # noqa: PLC0415
    from rewake.report import facts_now, require_charts  # noqa: PLC0415

    def reference(one: Drill, where: Path) -> DrillResult:
        view.say(f"running {one.name!r} once without faults: the reference")
        return run_drill(one, where, launcher(), servers=servers, judged=False)

    plan = drill.build().plan().on(servers)
    nodes = [node.name for node in plan.nodes]
    check_nodes(wanted, nodes)
    require_charts()
    facts = facts_now()  # before the run is what loads the machine
    with drill_view(drill.tuples, quiet=quiet) as view:
        with launchers_for(on, len(plan.hosting), view) as launcher:
            drill = drill.prepared(place, reference)
            view.expect(drill.tuples)
            view.say(f"running {drill.name!r} on {len(nodes)} nodes; logs in {place}")
            result = run_drill(
                drill, place / "query", launcher(),
                strikes=[each for each in wanted if isinstance(each, Strike)],
                faults=[each for each in wanted if not isinstance(each, Strike)],
                servers=servers,
                on_progress=view.progress,
            )  # fmt: skip
        report = write_report(
            result, place / "report.html", command_line(), facts=facts, title=title
        )
    return summary(result, str(report))
