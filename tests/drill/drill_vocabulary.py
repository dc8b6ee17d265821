"""What drills are made of: a query over items, its gate, its readers and its oracle.

with Drill(tmp_path) as drill:      # the query runs, its source waits
drill.flow(0.4)                 # 40% of the input has been read and results are out
drill.kill("averages")          # SIGKILL, while more flows
drill.finish()                  # the rest; waits for the end
drill.check()                       # what came out is what should have, once each
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from drill_queries import HIGHEST, ITEMS, TUPLES, WINDOW, averages
from gated_source import open_gate

from rewake import ItemStream, StreamSource
from rewake.graph.query import Query
from rewake.model.errors import UsageError
from rewake.net.clients.client import Subscription
from rewake.net.kill_points import Fault
from rewake.net.nodes.task import NodeTask
from rewake.net.queries.processes import Driver, Launcher, Processes, run_attempt
from rewake.net.queries.running import RunningQuery
from rewake.oracle.items import Expected, Verdict, expected_windows, judge

PATIENCE_SECONDS = 60.0


def until(happened: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- the oracle ----------------------------------------------------------------------------------


def expected(tuples: int = TUPLES, seed: int = 1) -> Expected:
    """What the query must yield."""
    batch = ItemStream(seed, ITEMS).batch(0, tuples)
    items, prices, times = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
    pieces = iter([(items, prices, times.astype(np.int64))])
    return expected_windows(pieces, WINDOW, lambda price: price <= HIGHEST)


def verdict(results: pa.Table, tuples: int = TUPLES, *, in_order: bool = True) -> Verdict:
    """Compare results, in the order in which they came, with what they should be."""
    return judge(
        expected(tuples),
        results.column("item_id").to_numpy(),
        results.column("avg_item_price").to_numpy(),
        results.column("max_item_time").to_numpy().astype(np.int64),
        WINDOW,
        in_order=in_order,
    )


def durable_results(where: "Drill | Path", stream: str = "averages") -> pa.Table:
    """What the log of a stream of one shard holds: all that was ever acknowledged, in order."""
    folder, query = (
        (where, averages(where / "gate"))
        if isinstance(where, Path)
        else (where.folder, where.query)
    )
    plan = query.plan()
    ((node, output),) = plan.streams[stream]
    schema = plan.node(node).outputs[output].schema
    log = folder / "query" / "nodes" / node
    reader = StreamSource(log, output=output, follow=False, schema=schema).open(0, 1)
    batches = []
    while not reader.ended:
        event = reader.read(0.0)
        if event is not None:
            batches.append(event.batch)
    reader.close()
    return pa.Table.from_batches(batches, schema)


# --- drivers in processes of their own -----------------------------------------------------------


def driver_command(folder: Path, faults: Iterable[Fault] = ()) -> list[str]:
    """How a driver is started in a folder."""
    words = [
        str(each) for fault in faults for each in (fault.node, fault.point, fault.hit, fault.life)
    ]
    return [sys.executable, str(Path(__file__).parent / "drill_driver.py"), str(folder), *words]


def run_driver(folder: Path, faults: Iterable[Fault] = ()) -> subprocess.CompletedProcess[str]:
    """Run a driver to its end, whichever it is, and wait until its nodes are gone as well."""
    # Nodes inherit the pipes: with files instead, nobody waits for them here.
    with (folder / "driver.txt").open("w+") as output:
        driver = subprocess.Popen(driver_command(folder, faults), stdout=output, stderr=output)
        try:
            code = driver.wait(PATIENCE_SECONDS * 2)
        finally:
            driver.kill()
        until(lambda: not processes_of(folder))
        output.seek(0)
        return subprocess.CompletedProcess(driver.args, code, "", output.read())


def processes_of(folder: Path) -> list[int]:
    """All processes that have to do with a driver in this folder: they have its output open."""
    mine = str(folder / "driver.txt")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(process.name) != os.getpid() and mine in (
                os.readlink(process / "fd" / "1"),
                os.readlink(process / "fd" / "2"),
            ):
                found.append(int(process.name))
    return found


# --- reading -------------------------------------------------------------------------------------


class Reader:
    """Reads a subscription in a thread of its own until the stream ends or it is told to leave."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.batches: list[pa.RecordBatch] = []
        self.error: BaseException | None = None
        self._leaving = False
        self.thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self._leaving and not self.subscription.ended:
                event = self.subscription.read(0.05)
                if event is not None and event.batch.num_rows:
                    self.batches.append(event.batch)
        except BaseException as error:
            self.error = error

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @property
    def ended(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.subscription.ended

    def leave(self) -> int:
        """Stop reading; the position where somebody else may go on."""
        self._leaving = True
        self.thread.join(PATIENCE_SECONDS)
        self.subscription.close()
        if self.error is not None:
            raise self.error
        return self.subscription.position


class Launched(Processes):
    """Processes that remember what they were given, so that a test can start one more."""

    def start(self, tasks: Sequence[NodeTask], driver: Driver) -> None:
        # By the name of the server, and of each node on it.
        self.given = {
            name: task
            for task in tasks
            for name in (task.name, *(each.plan.name for each in task.nodes))
        }
        super().start(tasks, driver)


class Drill:
    """A query that runs as processes of this machine, and everything that watches it."""

    def __init__(
        self,
        folder: Path,
        query: Query | None = None,
        *,
        tuples: int = TUPLES,
        faults: Iterable[Fault] = (),
        stream: str = "averages",
        launcher: Launcher | None = None,
        reading: bool = True,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.gate = folder / "gate"
        self.tuples = tuples
        self.query = query or averages(self.gate, tuples=tuples, **options)
        self.launcher = launcher or Launched()
        self.running = RunningQuery(
            self.query.plan(), folder / "query", self.launcher, faults=faults, **(settings or {})
        )
        self.plan = self.running.plan
        self._launched: list[Any] = []
        self.stream = stream
        shards = len(self.plan.streams.get(stream, ())) if reading else 0
        self.readers = [
            Reader(self.running.subscribe(stream, shard=shard, name=f"reader-{shard}"))
            for shard in range(shards)
        ]

    # --- while it runs ---------------------------------------------------------------------------

    def let(self, fraction: float) -> None:
        """Let this much of the input pass, and do not wait."""
        open_gate(self.gate, int(self.tuples * fraction))

    def flow(self, fraction: float) -> None:
        """Let this much pass, and wait until more results have come."""
        before = self.rows
        self.let(fraction)
        until(lambda: self._more(before))

    def _more(self, before: int) -> bool:
        self.running.await_end(0.0)
        return self.rows > before

    @property
    def rows(self) -> int:
        """How many results have come."""
        return sum(reader.rows for reader in self.readers)

    def kill(self, *nodes: str, sign: signal.Signals = signal.SIGKILL) -> list[int]:
        """As an accident would, all at once; the processes that were hit."""
        until(lambda: set(nodes) <= set(self.running.running))
        return [self._hit(node, sign) for node in nodes]

    def _hit(self, node: str, sign: signal.Signals) -> int:
        """One that has just ended counts as running until its coordinator has noticed."""
        hit: list[int] = []

        def tried() -> bool:
            with suppress(UsageError):
                hit.append(self.running.signal_node(node, sign))
            return bool(hit)

        until(tried)
        return hit[0]

    def epoch(self, node: str) -> int:
        """The epoch of a node's newest attempt."""
        return int(self.running.status()[node]["epoch"])

    def back(self, node: str, epoch: int = 2) -> None:
        """Wait until a node runs in this or a later life."""
        until(lambda: self.epoch(node) >= epoch and node in self.running.running)

    def finish(self) -> None:
        """The rest of the input; wait for the end of the query and of its streams."""
        self.let(1.0)
        assert self.running.await_end(PATIENCE_SECONDS), self.running.status()
        until(lambda: all(reader.ended for reader in self.readers))

    def launch(self, node: str) -> None:
        """One more attempt of a node, whatever others there are."""
        assert isinstance(self.launcher, Launched)
        task = self.launcher.given[node]
        fresh = multiprocessing.get_context("forkserver")
        process = fresh.Process(target=run_attempt, args=(task,), daemon=True)
        process.start()
        self._launched.append(process)

    def pids(self) -> list[int]:
        """The processes of all nodes that run now."""
        self.running.await_start(PATIENCE_SECONDS)
        found = [each["pid"] for each in self.running.status().values()]
        return [pid for pid in found if pid]

    # --- afterwards ------------------------------------------------------------------------------

    def results(self) -> pa.Table:
        """What came, shard by shard, each in its order."""
        return pa.Table.from_batches([each for one in self.readers for each in one.batches])

    def check(self) -> None:
        """Nothing lost, repeated, reordered or wrong."""
        found = verdict(self.results(), self.tuples, in_order=self._in_order())
        assert found.right, found
        assert found.expected > 0

    def _in_order(self) -> bool:
        return len(self.plan.nodes) == 3

    def close(self) -> None:
        """Stop the query."""
        for reader in self.readers:
            reader._leaving = True
        self.running.stop()
        for process in self._launched:
            process.join(PATIENCE_SECONDS)
        for reader in self.readers:
            reader.thread.join(PATIENCE_SECONDS)
            reader.subscription.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fork_servers() -> list[int]:
    """The processes below this one that fork nodes."""
    return [pid for pid in _children_of(os.getpid()) if "forkserver import main" in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def children() -> list[int]:
    """The processes below this one that are nodes: those that a fork server has forked."""
    return [pid for server in _children_of(os.getpid()) for pid in _children_of(server)]


def _children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            children = (task / "children").read_text().split()
            found += [int(each) for each in children if alive(int(each))]
    return found
