"""Nodes as the long-lived tasks of one Spark job.

The job is a `mapInArrow` over a range with one row per partition: it needs no SparkContext, so it
also runs through Spark Connect.  It is not a barrier stage: when a process dies, Spark starts that
one task again, on whatever executor has room.  Who may run a node is decided by epochs, not here.

What always holds: `start` raises what can be known before (too few slots, workers that are unfit,
a driver out of reach) and never hangs; `on_failure` is called at most once, and never after `stop`;
after `stop` no task of the job runs and no thread of it.

A session allows each task a number of failures (`spark.task.maxFailures`).  When a node has died
more often, Spark gives the whole job up; it is then submitted again, unless it cannot live at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from rewake.net.node_host import NodeTask
from rewake.node.messages import Address
from rewake.spark.probe import probe, together
from rewake.spark.slots import check_slots, slots
from rewake.spark.tags import cancel_tagged, tag_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NodeJob", "SparkNodes"]

_SCHEMA: Final = "node long, reason string"
# A job that lived for this long has shown that it can; it is started again as often as it takes.
_LIVED_SECONDS: Final = 10.0
_SHORT_LIVES: Final = 3
_LEAVING_SECONDS: Final = 15.0
_ENDING_SECONDS: Final = 30.0

# What a task runs: the number of its node in, why it ended out.  It travels to the worker.
Entry = Callable[[int], str]


class NodeJob:
    """One Spark job with a task for each of `nodes` nodes."""

    def __init__(
        self,
        session: SparkSession,
        nodes: int,
        entry: Entry,
        on_failure: Callable[[str], None],
        *,
        coordinator: Address | None = None,
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._entry = entry
        self._on_failure = on_failure
        self._coordinator = coordinator
        self._tag = f"rewake-{uuid4().hex}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rewake-job", daemon=True)
        # Why each node ended, when all have.
        self.reasons: dict[int, str] = {}
        self.submitted = 0

    def start(self) -> None:
        """Check that the nodes can run, then submit the job."""
        available = slots(self._session)
        check_slots(self._session, self._nodes, available)
        unknown = available is None
        workers = probe(
            self._session, self._nodes if unknown else 1, self._coordinator, hold=unknown
        )
        if unknown:
            check_slots(self._session, self._nodes, together(workers))
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the job has been submitted and not ended."""
        return self._thread.is_alive()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all nodes have ended; False when the time is over."""
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def stop(self, leaving_seconds: float = _LEAVING_SECONDS) -> None:
        """Give nodes that were told to leave some time, then cancel those that have not."""
        self._stopping.set()
        if self._thread.ident is None or self.wait(leaving_seconds):
            return
        deadline = time.monotonic() + _ENDING_SECONDS
        # Again and again: a tag reaches only what has been submitted already.
        while not self.wait(0.5) and time.monotonic() < deadline:
            self._cancel()

    def cancel(self) -> None:
        """End all nodes now, as a crash would."""
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
        short_lives = 0
        tag_jobs(self._session, self._tag)
        while not self._stopping.is_set():
            began = time.monotonic()
            self.submitted += 1
            try:
                self._submit()
                return
            except Exception as error:
                lived = time.monotonic() - began
                short_lives = 0 if lived > _LIVED_SECONDS else short_lives + 1
                if self._stopping.is_set():
                    return
                if short_lives >= _SHORT_LIVES or not self._session_lives():
                    self._on_failure(f"Spark gave the query's job up: {_first_lines(error)}")
                    return

    def _submit(self) -> None:
        frame = self._session.range(self._nodes, numPartitions=self._nodes)
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


def _first_lines(error: Exception) -> str:
    """What an error of Spark says before its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "Driver stacktrace"))]
    return " ".join(told[:3])[:2000] or type(error).__name__


class SparkNodes:
    """The launcher of a query's nodes on Spark: see `rewake.net.processes.Launcher`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._job: NodeJob | None = None

    def start(self, tasks: Sequence[NodeTask], on_failure: Callable[[str], None]) -> None:
        """Start all nodes; `on_failure` is told when Spark gives them up."""
        coordinator = tasks[0].coordinator if tasks else None
        self._job = NodeJob(
            self._session, len(tasks), _node_entry(tuple(tasks)), on_failure,
            coordinator=coordinator,
        )  # fmt: skip
        self._job.start()

    def stop(self) -> None:
        """Wait for the nodes, which have been told to leave; then end those that have not."""
        if self._job is not None:
            self._job.stop()


def _node_entry(tasks: tuple[NodeTask, ...]) -> Entry:
    def entry(number: int) -> str:
        from rewake.net.node_host import run_node  # noqa: PLC0415 (on the worker)

        return run_node(tasks[number])

    return entry
