"""The first batch after the whole application was killed: `kill -9` of Spark and all its processes.

The application is a program of its own: `python -m rewake_lab.bench.structured.restart KIND FOLDER
ROWS IDS` starts Spark, goes on with the query where its checkpoint is, and writes a line of JSON
for every batch.  What always holds: none of its processes is left when `killed` returns.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rewake.model.errors import OperatingFault
from rewake_lab.bench.structured.contenders import OURS, Batch, native, ours

SETTINGS: Final = {"spark.driver.memory": "4g"}
_CORES: Final = 2
_GONE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


def first_batch_seconds(kind: str, folder: Path, rows: int, ids: int) -> float:
    """Start the application again, time its first batch, and kill it in the middle of a later one.

    What the first batch is has been settled by the run before: it was cut short in it.
    """
    with application(kind, folder, rows, ids) as batches:
        first = next(batches)
        later = [next(batches), next(batches)][-1]
        time.sleep(later.seconds / 2)
    if first.rows != rows:
        raise OperatingFault(f"the first batch had {first.rows:,} rows, not {rows:,}")
    return first.seconds


def fill(kind: str, folder: Path, rows: int, ids: int) -> None:
    """Run the application for the first time until there is state for about all ids."""
    # So many tuples for an item on average: all but a few of 100,000 ids have one.
    count = 10 * ids // rows
    with application(kind, folder, rows, ids) as batches:
        for _ in range(count):
            last = next(batches)
        time.sleep(last.seconds / 2)


@contextmanager
def application(kind: str, folder: Path, rows: int, ids: int) -> Iterator[Iterator[Batch]]:
    """An application of its own process, and the batches that it tells of; killed at the end."""
    folder.mkdir(exist_ok=True)
    module = "rewake_lab.bench.structured.restart"
    said = folder / "stderr.txt"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, kind, str(folder), str(rows), str(ids)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield _batches(process, said)
    finally:
        killed(process)


def _batches(application: subprocess.Popen[str], said: Path) -> Iterator[Batch]:
    assert application.stdout is not None
    for line in application.stdout:
        yield Batch(**json.loads(line))
    raise OperatingFault(f"the application ended by itself: {said.read_text()[-2000:]}")


def killed(application: subprocess.Popen[str]) -> None:
    """Kill it and all that descends from it, at once; return when they are gone."""
    doomed = [application.pid, *descendants(application.pid)]
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    application.wait()
    if application.stdout is not None:
        application.stdout.close()
    deadline = time.monotonic() + _GONE_SECONDS
    while any(_parent(pid) is not None for pid in doomed) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def descendants(pid: int) -> list[int]:
    """Every process that this one started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _parent(pid: int) -> int | None:
    """The parent's number; None when there is no such process, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[1])


def _run(kind: str, folder: Path, rows: int, ids: int) -> None:
    """Be the application: runs until it is killed."""
    from rewake.operators.windows.specs import running_window  # noqa: PLC0415 (the parent needs none of it)
    from rewake.spark.session import local_session  # noqa: PLC0415

    session = local_session(cores=_CORES, conf=SETTINGS)
    if kind == OURS:
        contender = ours(session, folder, ids, running_window())
    else:
        contender = native(session, folder, ids, kind)
    query = contender.start(rows)
    told = -1
    while query.exception() is None:
        for batch in [Batch.of(progress) for progress in query.recentProgress]:
            if batch.number > told:
                told = batch.number
                print(json.dumps(asdict(batch)), flush=True)  # noqa: T201 (the parent reads it)
        time.sleep(_POLL_SECONDS)
    raise OperatingFault(str(query.exception()))


if __name__ == "__main__":
    _run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
