"""Running experiments one after the other, keeping rows as they come.

What always holds: rows that an experiment has yielded are kept, whatever ends the run; an
interrupted or failed experiment is marked so in the manifest, and the rest of a list still runs
after a failure, but not after an interrupt.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rewake.model.errors import RewakeError
from rewake.report import facts_now
from rewake_lab.reproduce.experiment import Experiment, Row, ScaleName, Setting
from rewake_lab.reproduce.raw import Kept, State, keep
from rewake_lab.reproduce.registry import Entry

Progress = Callable[[str], None]


class Interrupted(KeyboardInterrupt):
    """The run was interrupted; says what is kept and what is missing."""


def run(
    entries: Sequence[Entry],
    folder: Path,
    *,
    scale: ScaleName,
    seed: int,
    command: str,
    progress: Progress,
) -> list[Kept]:
    """Run these experiments and keep their rows in `folder`; what was kept of each."""
    done: list[Kept] = []
    for number, entry in enumerate(entries):
        progress(f"{entry.name} ({number + 1} of {len(entries)}): {entry.title}")
        with _scratch(folder) as scratch:
            kept = run_one(entry.name, entry.load(), Setting(scratch, scale, seed), folder, command)
        done.append(kept)
        if kept.state == "interrupted":
            missing = ", ".join(each.name for each in entries[number:])
            complete = ", ".join(each.name for each in done if each.state == "complete")
            raise Interrupted(
                f"interrupted; kept in {folder}: {complete or 'no whole experiment'}, and "
                f"{kept.rows} rows of {kept.name}; missing: {missing}"
            )
    return done


def run_one(
    name: str, experiment: Experiment, setting: Setting, folder: Path, command: str
) -> Kept:
    """Run one experiment; its rows are kept even if it does not come to its end."""
    rows: list[Row] = []
    state: State = "complete"
    error = ""
    started, facts = datetime.now(UTC).isoformat(timespec="seconds"), facts_now()
    start = time.perf_counter()
    try:
        rows.extend(experiment.rows(setting))  # what came before an error stays in the list
    except KeyboardInterrupt:
        state = "interrupted"
    except RewakeError as fault:
        state, error = "failed", str(fault)
    kept = Kept(
        name=name,
        state=state,
        rows=len(rows),
        scale=setting.scale,
        scaling=experiment.scaling(setting),
        seed=setting.seed,
        command=command,
        started=started,
        seconds=round(time.perf_counter() - start, 3),
        load_after=os.getloadavg()[0],
        error=error,
        facts=facts.as_json(),
    )
    keep(folder, kept, rows)
    return kept


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for logs on the disk of the results, gone when the experiment is over."""
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="running-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
