"""The demo's story, told while it happens: a line for each thing, and a bar for what takes time."""

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from rewake.lab.demo import DemoReport, DemoSettings, Kill, Observer, Recovery

__all__ = ["Story"]


class Story(Observer):
    """Prints to `console`, unless that is None, and moves `bar`."""

    def __init__(self, settings: DemoSettings, bar: Progress, console: Console | None) -> None:
        self._settings = settings
        self._bar = bar
        self._console = console
        self._task: TaskID | None = None
        times = {0: "not", 1: "once"}.get(settings.kills, f"{settings.kills} times")
        self._say_plainly(
            f"The stream: {settings.tuples:,} purchases of {settings.items:,} items.\n"
            f"The query: the average price of every {settings.window} purchases of an item.\n"
            f"The process that computes it is killed {times}.\n"
        )

    def stage(self, text: str, total: int) -> None:
        """Begin a new bar; one without a total only shows that something goes on."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(text, total=total or None)

    def progress(self, done: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bar.update(self._task, completed=done)

    def started(self, pid: int, start_ms: float) -> None:
        """Say that a worker is ready."""
        self._say("start", f"process {pid} is ready after {start_ms / 1000:.1f} s")

    def killed(self, kill: Kill) -> None:
        """Say what the kill met and left."""
        late = ", while it waited for input" if kill.waiting else ""
        self._say("kill -9", f"process {kill.pid} after {kill.position:,} tuples{late}", "red")
        torn = f", {kill.torn_bytes:,} bytes are torn" if kill.torn_bytes else ""
        self._say(
            "", f"{kill.frames_durable} frames were durable, {kill.frames_found} are there{torn}"
        )

    def recovered(self, recovery: Recovery) -> None:
        """Say how it came back."""
        self._say(
            "recover",
            f"in {recovery.total_ms:.1f} ms: {recovery.windows:,} open windows loaded, "
            f"{recovery.tuples_replayed:,} tuples replayed",
            "yellow",
        )

    def finished(self, report: DemoReport) -> None:
        """Say that the whole stream has been processed."""
        self._say(
            "finish",
            f"{report.settings.tuples:,} tuples at {report.tuples_per_s / 1e6:.1f} million/s, "
            "every frame synced",
        )

    def checked(self, report: DemoReport) -> None:
        """Say what the oracle says."""
        verdict = report.verdict
        assert verdict is not None
        style = "green" if report.right else "bold red"
        self._say("check", f"{report.results:,} results, {verdict.expected:,} expected", style)
        self._say(
            "",
            f"{verdict.lost} lost, {verdict.duplicated} duplicated, {verdict.reordered} reordered, "
            f"{verdict.wrong} wrong",
        )
        if report.broken_promises:
            self._say("", f"{report.broken_promises} durable frames gone or changed", style)

    def _say(self, what: str, text: str, style: str = "cyan") -> None:
        self._say_plainly(Text.assemble("  ", (f"{what:<8}", style), text))

    def _say_plainly(self, text: str | Text) -> None:
        if self._console is None:
            return
        # The bar is on stderr and the story on stdout; on a terminal they share lines.
        if self._bar.live.is_started:
            self._bar.stop()
            self._console.print(text)
            self._bar.start()
        else:
            self._console.print(text)
