"""A look at the workers before nodes are sent there: one short job that says what is wrong.

Without it, a worker with another Python, without Rewake, or without a way to the driver would fail
again and again, and the user would see nothing but a query that does not start.

What always holds: it ends within `timeout_seconds`; a fault is a typed error that names the
worker's host and the remedy.  The job needs no SparkContext, so it runs through Spark Connect, too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from rewake import __version__
from rewake.model.errors import OperatingFault
from rewake.node.messages import Address
from rewake.spark.requirements import MissingRequirement
from rewake.spark.tags import cancel_tagged, tag_jobs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["DriverUnreachable", "Worker", "WorkersUnfit", "probe", "together"]

_SCHEMA: Final = (
    "host string, python string, rewake string, fault string, began double, ended double"
)
_CONNECT_SECONDS: Final = 5.0
# Workers that start cold begin seconds apart, and must still meet.
_HOLD_SECONDS: Final = 1.5


class WorkersUnfit(MissingRequirement):
    """Python workers lack something that nodes need."""


class DriverUnreachable(OperatingFault):
    """Workers cannot connect to the coordinator, which runs on the driver."""


@dataclass(frozen=True, slots=True)
class Worker:
    """What one task of the probe found."""

    host: str
    python: str
    rewake: str
    fault: str
    began: float
    ended: float


def probe(
    session: SparkSession,
    tasks: int,
    coordinator: Address | None,
    *,
    hold: bool = False,
    timeout_seconds: float = 120.0,
) -> list[Worker]:
    """Run the job; raise what is wrong.  `hold` makes tasks last, so that `together` can count."""
    run = _task(coordinator, _HOLD_SECONDS if hold else 0.0)
    frame = session.range(tasks, numPartitions=tasks).mapInArrow(run, _SCHEMA)
    rows = _collect(session, frame, timeout_seconds)
    workers = [Worker(**row.asDict()) for row in rows]
    for worker in workers:
        _check(worker, coordinator)
    return workers


def together(workers: list[Worker]) -> int:
    """How many tasks of a probe ran at one time, at most."""
    return max(
        (sum(b.began <= a.began < b.ended for b in workers) for a in workers if not a.fault),
        default=0,
    )


def _check(worker: Worker, coordinator: Address | None) -> None:
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if worker.python != mine:
        raise WorkersUnfit(
            f"the Python worker on {worker.host} is Python {worker.python}, the driver is {mine}; "
            "set PYSPARK_PYTHON to the same version before the session starts"
        )
    if worker.rewake != __version__:
        what = f"Rewake {worker.rewake}" if worker.rewake else "no Rewake"
        raise WorkersUnfit(
            f"the Python worker on {worker.host} has {what}, the driver has {__version__}; install "
            f"rewake=={__version__} there, or ship an environment with spark.archives"
        )
    if worker.fault and coordinator is not None:
        raise DriverUnreachable(
            f"the worker on {worker.host} cannot connect to the coordinator at "
            f"{coordinator[0]}:{coordinator[1]} ({worker.fault}); let the coordinator listen at an "
            "address that workers reach, and open that port"
        )


def _task(
    coordinator: Address | None, hold_seconds: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of the job: nested, so that it travels whole to workers without Rewake."""
    connect_seconds = _CONNECT_SECONDS

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import socket  # noqa: PLC0415 (on the worker)
        import sys as worker_sys  # noqa: PLC0415
        import time  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415

        began, fault, version = time.time(), "", ""
        for _ in batches:
            pass
        try:
            import rewake  # noqa: PLC0415

            version = rewake.__version__
        except ImportError:
            pass
        try:
            if coordinator is not None:
                socket.create_connection(coordinator, connect_seconds).close()
        except OSError as error:
            fault = str(error)
        time.sleep(hold_seconds)
        python = f"{worker_sys.version_info.major}.{worker_sys.version_info.minor}"
        yield pyarrow.RecordBatch.from_pylist(
            [{"host": socket.gethostname(), "python": python, "rewake": version, "fault": fault,
              "began": began, "ended": time.time()}]
        )  # fmt: skip

    return run


def _collect(session: SparkSession, frame: Any, timeout_seconds: float) -> list[Any]:
    """Collect on another thread, so that a job that never ends can be given up."""
    tag = f"rewake-probe-{uuid4().hex}"
    outcome: list[Any] = []

    def collect() -> None:
        try:
            tag_jobs(session, tag)
            outcome.append(frame.collect())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=collect, name="rewake-probe", daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if thread.is_alive():
        cancel_tagged(session, tag)
        raise OperatingFault(
            f"Spark did not run a trivial job within {timeout_seconds:g} s: its slots are taken by "
            "other jobs, or its workers do not start; look at its web page or logs"
        )
    if isinstance(outcome[0], Exception):
        raise _explained(outcome[0]) from outcome[0]
    return list(outcome[0])


def _explained(error: Exception) -> Exception:
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text:
        said = text.split("PYTHON_VERSION_MISMATCH", 1)[1].splitlines()[0].strip(" ]:.")
        mine = f"{sys.version_info.major}.{sys.version_info.minor}"
        return WorkersUnfit(
            f"the Python workers are not the driver's Python {mine}: {said}; set PYSPARK_PYTHON to "
            "the same version before the session starts"
        )
    if "No module named" in text:
        module = text.split("No module named", 1)[1].splitlines()[0].strip()
        return WorkersUnfit(f"the Python workers have no module {module}; install it there")
    return OperatingFault(f"Spark cannot run a trivial Python job: {text.splitlines()[0]}")
