"""Servers as the long-lived tasks of one Spark job.

The job is a `mapInArrow` over a range with one row per partition: it needs no SparkContext, so it
also runs through Spark Connect.  It is not a barrier stage: when a process dies, Spark starts that
one task again, on whatever executor has room.  Who may run a node is decided by epochs, not here.

What always holds: `start` raises what can be known before (too few slots, workers that are unfit,
a driver out of reach) and never hangs; `on_failure` is called at most once, and never after `stop`;
after `stop` no task of the job runs and no thread of it.

A session allows each task a number of failures (`spark.task.maxFailures`).  When a server has died
more often, Spark gives the whole job up; it is then submitted again, unless it cannot live at all.
So is a job that returned although its query is not over: Spark takes a task that returns for done,
and only the coordinator lets a server go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from rewake.model.errors import OperatingFault
from rewake.net.nodes.task import ServerTask
from rewake.net.queries.processes import Driver, reached
from rewake.net.watcher import watcher
from rewake.node.coordinator.supervision import Supervision
from rewake.node.messages import Address
from rewake.spark.probe import probe, together
from rewake.spark.slots import check_slots, slots
from rewake.spark.tags import cancel_tagged, tag_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NodeJob", "SparkNodes"]

_SCHEMA: Final = "node long, reason string"
_SHORT_LIVES: Final = 3
_LEAVING_SECONDS: Final = 15.0
_ENDING_SECONDS: Final = 30.0

# What a task runs: the number of its server in, why it ended out.  It travels to the worker.
Entry = Callable[[int], str]


class NodeJob:
    """One Spark job with a task for each of `servers` servers."""

    def __init__(
        self,
        session: SparkSession,
        servers: int,
        entry: Entry,
        on_failure: Callable[[str], None],
        *,
        coordinator: Address | None = None,
        over: Callable[[], bool] | None = None,
        reached: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._session = session
        self._servers = servers
        self._entry = entry
        self._on_failure = on_failure
        self._coordinator = coordinator
        self._tag = f"rewake-{uuid4().hex}"
        self._stopping = threading.Event()
        # Whether servers that have returned may have done so; None: they always may.
        self._over = over
        self._reached = reached
        self._thread = watcher(
            self._run, "what keeps the query's job running", on_failure, name="rewake-job"
        )
        # Why each server ended, when all have.
        self.reasons: dict[int, str] = {}
        self.submitted = 0

    def start(self) -> None:
        """Check that the servers can run, then submit the job."""
        available = slots(self._session)
        check_slots(self._session, self._servers, available)
        unknown = available is None
        workers = probe(
            self._session, self._servers if unknown else 1, self._coordinator, hold=unknown
        )
        if unknown:
            check_slots(self._session, self._servers, together(workers))
        self.submit()

    def submit(self) -> None:
        """Submit the job, whether or not the servers can run."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the job has been submitted and not ended."""
        return self._thread.is_alive()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all servers have ended; False when the time is over."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def stop(self, leaving_seconds: float = _LEAVING_SECONDS) -> None:
        """Give servers that were told to leave some time, then cancel those that have not."""
        self._stopping.set()
        if self._thread.ident is None or self.wait(leaving_seconds):
            return
        deadline = time.monotonic() + _ENDING_SECONDS
        # Again and again: a tag reaches only what has been submitted already.
        while not self.wait(0.5) and time.monotonic() < deadline:
            self._cancel()

    def cancel(self) -> None:
        """End all servers now, as a crash would."""
        self._stopping.set()
        self._cancel()
        self.stop(0.0)

    def _cancel(self) -> None:
        # A session that has been stopped meanwhile has no job left to cancel.
        try:
            cancel_tagged(self._session, self._tag)
        except Exception:
            self._stopping.set()

    # --- on the job's own thread -----------------------------------------------------------------

    def _run(self) -> None:
        lives = Supervision(_SHORT_LIVES)
        tag_jobs(self._session, self._tag)
        while not self._stopping.is_set():
            lives.started(self._tag, time.monotonic() * 1e3)
            self.submitted += 1
            try:
                self._submit()
                if self._over is None or self._over():
                    return
                raise OperatingFault(_returned(self.reasons))
            except Exception as error:
                lives.heard(self._tag, time.monotonic() * 1e3, self._reached())
                if self._stopping.is_set() or (self._over is not None and self._over()):
                    return
                if lives.ended(self._tag) or not self._session_lives():
                    self._on_failure(f"Spark gave the query's job up: {_first_lines(error)}")
                    return

    def _submit(self) -> None:
        frame = self._session.range(self._servers, numPartitions=self._servers)
        rows = frame.mapInArrow(_task(self._entry), _SCHEMA).collect()
        self.reasons = {int(row.node): str(row.reason) for row in rows}

    def _session_lives(self) -> bool:
        try:
            self._session.conf.get("spark.master", "")
        except Exception:
            return False
        return True


def _task(entry: Entry) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function of the job; nested, so that it travels by value."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415 (on the worker)

        for batch in batches:
            for number in batch.column(0).to_pylist():
                reason = entry(number)
                yield pyarrow.RecordBatch.from_pydict(
                    {"node": [number], "reason": [str(reason)]},
                    pyarrow.schema([("node", pyarrow.int64()), ("reason", pyarrow.string())]),
                )

    return run


def _returned(reasons: dict[int, str]) -> str:
    said = ", ".join(sorted(set(reasons.values()))) or "nothing"
    return f"its tasks returned before the query was over (they say: {said})"


def _first_lines(error: Exception) -> str:
    """What an error of Spark says before its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "Driver stacktrace"))]
    return " ".join(told[:3])[:2000] or type(error).__name__


class SparkNodes:
    """The launcher of a query's nodes on Spark: see `rewake.net.queries.processes.Launcher`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._job: NodeJob | None = None

    def start(self, tasks: Sequence[ServerTask], driver: Driver) -> None:
        """Start all nodes; the driver is told when Spark gives them up."""
        coordinator = tasks[0].coordinator if tasks else None
        self._job = NodeJob(
            self._session, len(tasks), _node_entry(tuple(tasks)), driver.fail,
            coordinator=coordinator, over=lambda: driver.over,
            reached=lambda: sum(reached(task, driver) or 0.0 for task in tasks),
        )  # fmt: skip
        self._job.start()

    def stop(self) -> None:
        """Wait for the nodes, which have been told to leave; then end those that have not."""
        if self._job is not None:
            self._job.stop()


def _node_entry(tasks: tuple[ServerTask, ...]) -> Entry:
    def entry(number: int) -> str:
        from rewake.net.servers.server import run_server  # noqa: PLC0415 (on the worker)

        return run_server(tasks[number])

    return entry
