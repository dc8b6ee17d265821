"""How a drill looks on a terminal: a bar while it runs, blows as they fall, then a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from rewake.cli.exit_codes import ExitCode
from rewake.cli.options import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from rewake.drill.run import DrillResult

_WRONGS = ("lost", "duplicated", "reordered", "wrong")


class DrillView:
    """Tells what happens, once each: to people on stdout, and as a bar on stderr."""

    def __init__(self, console: Console | None, bar: Any, tuples: int) -> None:
        self._console = console
        self._bar = bar
        self._task = bar.add_task("streaming", total=tuples, promise="")
        self._blows = 0
        self._back: set[tuple[str, int]] = set()

    def say(self, text: str) -> None:
        """Say something above the bar."""
        if self._console is not None:
            self._console.print(text)

    def expect(self, tuples: int) -> None:
        """How many input tuples there are, now that it is known."""
        self._bar.update(self._task, total=tuples)

    def progress(self, result: DrillResult, read: int) -> None:
        """What a run looks like now."""
        from rewake.drill.lateness import late_in_short  # noqa: PLC0415 (slow to import)
        from rewake.drill.promise import in_short, standing  # noqa: PLC0415

        for blow in result.blows[self._blows :]:
            verb = "kill -9" if blow.action == "kill" else "kill -STOP"
            at = f"at {blow.at - result.first_result_at:.1f} s"
            when = at if result.first_result_at else "before the first result"
            self.say(f"[bold red]{verb}[/] {blow.node} (pid {blow.pid}) {when}")
            for line in standing(result.nodes.said(blow.node, blow.at)):
                self.say(f"  {line}")
        self._blows = len(result.blows)
        # A node that must produce again reads its input again: never show less than before.
        task = self._bar.tasks[self._task]
        promises = (in_short(said) for said in result.status.values() if said.get("running", True))
        shown = (each for each in promises if each)
        self._bar.update(
            self._task,
            completed=max(task.completed, min(read, task.total)),
            promise=", ".join(filter(None, (late_in_short(result.status), next(shown, "")))),
        )


@contextmanager
def drill_view(tuples: int, *, quiet: bool) -> Iterator[DrillView]:
    """A view that is gone from the terminal when the drill is over."""
    from rich.console import Console  # noqa: PLC0415 (keeps --help fast)
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[promise]}", style="dim"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        yield DrillView(None if quiet else Console(highlight=False), bar, tuples)


def show_and_exit(summaries: Sequence[dict[str, Any]], as_json: bool) -> NoReturn:
    """Tell what one run measured, or many; the exit code says whether all results were right."""
    from rewake.drill.summary import over_repeats  # noqa: PLC0415 (slow to import)

    over_all = over_repeats(summaries)
    if as_json:
        print_json(summaries[0] if len(summaries) == 1 else over_all | {"each": summaries})
    else:
        for one in summaries:
            _print_summary(one)
        if len(summaries) > 1:
            typer.echo(_over_all(over_all))
    raise typer.Exit(ExitCode.OK if over_all["ok"] else ExitCode.INVARIANT_VIOLATED)


def _over_all(figures: dict[str, Any]) -> str:
    total = figures["recovery_total_ms"]
    wrongs = ", ".join(f"{figures[name]} {name}" for name in _WRONGS)
    said = f"{figures['runs']} runs, {figures['kills']} kills: {wrongs}"
    if total["p50"] is None:
        return said
    return f"{said}; kill to next result p50 {total['p50']:.0f}, p99 {total['p99']:.0f} ms"


def _print_summary(figures: dict[str, Any]) -> None:
    """The table at the end."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in _rows(figures):
        table.add_row(name, value)
    console.print(table)
    for each in figures["recoveries"]:
        console.print(
            f"{each['node']}: detect {each['detect']:.0f} + restart {each['restart']:.0f} + load "
            f"{each['load']:.0f} + replay {each['replay']:.0f} ms; first new result after "
            f"{each['total']:.0f} ms"
        )
        if "target" in each:
            console.print(
                f"{each['node']}: {each['beyond_restart']:.0f} ms beyond the restart; predicted "
                f"{each['predicted']:.0f}, promised {each['target']:.0f} ms"
            )
    if figures["ok"]:
        console.print(
            f"[bold green]{figures['results']:,} results, {figures['expected']:,} expected: "
            "0 lost, 0 duplicated, 0 reordered, 0 wrong[/]"
        )
    else:
        said = ", ".join(f"{figures[name]:,} {name}" for name in _WRONGS if figures[name])
        console.print(f"[bold red]{said} of {figures['expected']:,} expected results[/]")
    for missed in figures["missed"]:
        console.print(f"[yellow]{missed} did not happen: the query was over before[/]")
    if figures["report"]:
        console.print(f"report: {figures['report']}")


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "tuples", f"{figures['tuples']:,}"
    yield "results", f"{figures['results']:,}"
    yield "throughput", f"{figures['tuples_per_s']:,} tuples/s"
    latency = figures["latency_ms"]
    if latency["p50"] is not None:
        yield "latency p50 / p99", f"{latency['p50']:.0f} / {latency['p99']:.0f} ms"
        outage = figures["latency_with_outages_ms"]
        yield "the same, outages included", f"{outage['p50']:.0f} / {outage['p99']:.0f} ms"
    if figures["late_dropped"]:
        yield "late tuples dropped", f"{figures['late_dropped']:,}"
    yield "kills", str(len(figures["kills"]))
