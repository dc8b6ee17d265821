"""Fuzz the decoders of stored bytes: every target for its share of the time, then a table.

    python fuzz/run.py                      all targets, 60 s in total
    python fuzz/run.py log frame --seconds 600
    python fuzz/run.py --runs 100000 --json
    python fuzz/run.py --replay fuzz/findings/log-...

Exit codes: 0 nothing found; 1 could not run; 2 wrong usage; 3 atheris is missing; 4 findings; 130
interrupted.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

FAILED, ATHERIS_MISSING, FOUND, INTERRUPTED = 1, 3, 4, 130
# Shares of the time: whole logs and footprints have the most to them.
WEIGHTS: Final = {"log": 4, "footprints": 6, "frame": 2, "columns": 2, "results": 2}
LIMITS: Final = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1")
STATUS: Final = re.compile(
    r"#(?P<executions>\d+)\s+\S+\s+cov: (?P<coverage>\d+) ft: (?P<features>\d+) "
    r"corp: (?P<corpus>\d+)/\S+"
)


@dataclass
class Outcome:
    """What fuzzing one target came to."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    coverage: int = 0
    features: int = 0
    corpus: int = 0
    restarts: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def per_second(self) -> int:
        """Executions per second."""
        return round(self.executions / self.seconds) if self.seconds else 0


class ChildFailed(Exception):
    """A child ended before it ran a single input."""


class Fuzzing:
    """One target: child processes until its time or its runs are used up."""

    def __init__(self, target: str, seconds: float, runs: int | None, folder: Path) -> None:
        self.outcome = Outcome(target)
        self._seconds = seconds
        self._runs = runs
        self._folder = folder
        self._story = folder / f"{target}.log"
        self._before = self._saved()
        self._child: subprocess.Popen[str] | None = None

    def run(self, seeds: Path) -> Iterator[Outcome]:
        """Yield what is known so far, again and again; a child that dies is replaced."""
        started = time.monotonic()
        until = started + self._seconds
        while time.monotonic() < until:
            base = self.outcome.executions
            for line in self._lines(seeds, until, base):
                match = STATUS.search(line)
                if match is not None:
                    self._note({name: int(text) for name, text in match.groupdict().items()}, base)
                    self.outcome.seconds = time.monotonic() - started
                    yield self.outcome
            self._conclude(base)
            if self._child_code() == 0 or self.outcome.executions >= (self._runs or 1 << 62):
                return
            self.outcome.restarts += 1

    def _note(self, numbers: dict[str, int], base: int) -> None:
        self.outcome.executions = base + numbers["executions"]
        self.outcome.coverage = max(self.outcome.coverage, numbers["coverage"])
        self.outcome.features = max(self.outcome.features, numbers["features"])
        self.outcome.corpus = numbers["corpus"]

    def _conclude(self, base: int) -> None:
        """A child that found something may die of it; one that did nothing at all is broken."""
        self.take_stock()
        idle = self.outcome.executions == base and not self.outcome.findings
        if idle and self._child_code() != 0:
            raise ChildFailed(self._story.read_text()[-2000:])

    def take_stock(self) -> None:
        """Note what has been found so far, also when interrupted."""
        saved = self._saved()
        self.outcome.findings = sorted(path for path in saved if saved[path] != self._before[path])

    def _lines(self, seeds: Path, until: float, done: int) -> Iterator[str]:
        corpus = HERE / "corpus" / self.outcome.target
        for folder in (corpus, self._folder):
            folder.mkdir(parents=True, exist_ok=True)
        prefix = f"-artifact_prefix={self._folder}/{self.outcome.target}-"
        limits = [*LIMITS, f"-runs={self._runs - done}"] if self._runs else [*LIMITS]
        command = [sys.executable, str(HERE / "child.py"), self.outcome.target, str(self._folder)]
        command += [str(until), str(corpus), str(seeds), prefix, *limits]
        # A session of its own, so that Ctrl-C reaches this process alone.
        self._child = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
        assert self._child.stderr is not None
        try:
            with self._story.open("w") as story:
                for line in self._child.stderr:
                    story.write(line)
                    yield line
            self._child.wait()
        finally:
            if self._child.poll() is None:
                self._child.kill()
                self._child.wait()

    def _child_code(self) -> int | None:
        return self._child.returncode if self._child is not None else None

    def _saved(self) -> Counter[str]:
        """The inputs that are kept, and when each was written."""
        found = [path for path in self._folder.glob(f"{self.outcome.target}-*") if not path.suffix]
        return Counter({str(path): path.stat().st_mtime_ns for path in found})


@contextmanager
def _seed_folder(target: str) -> Iterator[Path]:
    """The seeds and the regressions of a target, as files."""
    from fuzz.seeds import seeds_for

    with tempfile.TemporaryDirectory(prefix="rewake-fuzz-") as folder:
        inputs = seeds_for(target)
        inputs += [path.read_bytes() for path in sorted((HERE / "regressions" / target).glob("*"))]
        for number, data in enumerate(inputs):
            (Path(folder) / f"{number:04d}").write_bytes(data)
        yield Path(folder)


def _fuzz_all(
    chosen: list[str],
    outcomes: list[Outcome],
    seconds: float,
    runs: int | None,
    folder: Path,
    console: Console,
) -> None:
    """Fuzz one target after the other; `outcomes` holds what is known even when interrupted."""
    weights = {name: WEIGHTS.get(name, 1) for name in chosen}
    unit = seconds / sum(weights.values())
    columns = (
        TextColumn("{task.description:<11}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        tasks = {
            name: progress.add_task(name, total=None, start=False, state="") for name in chosen
        }
        for name in chosen:
            share = unit * weights[name] if runs is None else float("inf")
            fuzzing = Fuzzing(name, share, runs, folder)
            progress.update(tasks[name], total=runs or share)
            progress.start_task(tasks[name])
            try:
                with _seed_folder(name) as seeds:
                    for outcome in fuzzing.run(seeds):
                        _show(progress, tasks[name], outcome, runs)
            finally:
                fuzzing.take_stock()
                outcomes.append(fuzzing.outcome)
            progress.update(tasks[name], completed=runs or share)


def _show(progress: Progress, task: TaskID, outcome: Outcome, runs: int | None) -> None:
    elapsed = progress.tasks[task].elapsed or 0.0
    state = f"{outcome.executions:,} runs, {outcome.coverage} branches, {outcome.corpus} inputs"
    progress.update(task, completed=outcome.executions if runs else elapsed, state=state)


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("target", title="Hostile bytes")
    for heading in ("executions", "exec/s", "coverage", "features", "corpus", "findings"):
        table.add_column(heading, justify="right")
    for each in outcomes:
        numbers = (each.executions, each.per_second, each.coverage, each.features, each.corpus)
        table.add_row(each.target, *[f"{n:,}" for n in numbers], str(len(each.findings)))
    return table


def _replay(path: Path, target: str | None, console: Console) -> int:
    from fuzz.findings import attempt, target_of

    name = target or target_of(path)
    if name is None:
        raise typer.BadParameter(f"{path} does not say which target it is for: give the target")
    error = attempt(name, path.read_bytes(), seconds=10)
    if error is None:
        console.print(f"{name}: {path} raises nothing that it must not", soft_wrap=True)
        return 0
    console.print("".join(traceback.format_exception(error)), markup=False, highlight=False)
    return FOUND


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Targets; all by default.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time for all targets together.")] = 60,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs per target, not a time.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    findings: Annotated[Path, typer.Option(help="Where inputs are kept.")] = HERE / "findings",
    replay: Annotated[Path | None, typer.Option(exists=True, help="Run one input again.")] = None,
) -> None:
    """Fuzz the decoders of stored bytes with inputs grown from honest logs."""
    from fuzz.kernels import use_python_kernels
    from fuzz.targets import TARGETS

    console = Console(stderr=as_json)
    unknown = sorted(set(targets or ()) - set(TARGETS))
    if unknown:
        raise typer.BadParameter(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if replay is None and importlib.util.find_spec("atheris") is None:
        console.print("atheris is not installed; run `make fuzz`, or: pip install -e '.[fuzz]'")
        raise typer.Exit(ATHERIS_MISSING)
    use_python_kernels()
    if replay is not None:
        raise typer.Exit(_replay(replay, targets[0] if targets else None, console))
    outcomes: list[Outcome] = []
    code = 0
    try:
        _fuzz_all(targets or list(TARGETS), outcomes, seconds, runs, findings, console)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except ChildFailed as failure:
        console.print(f"a fuzzing process could not start:\n{failure}", markup=False)
        code = FAILED
    raise typer.Exit(_report(outcomes, console, as_json=as_json) or code)


def _report(outcomes: list[Outcome], console: Console, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(each) for each in outcomes], indent=2))  # noqa: T201
    else:
        console.print(_table(outcomes))
    for path in (path for each in outcomes for path in each.findings):
        shown = os.path.relpath(path)
        console.print(f"finding: python fuzz/run.py --replay {shown}", soft_wrap=True)
    return FOUND if any(each.findings for each in outcomes) else 0


if __name__ == "__main__":
    typer.run(main)
