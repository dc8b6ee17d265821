"""Streaming queries over files, one batch per file, with deaths where a test wants them."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from task_vocabulary import until

import rewake
from rewake.oracle import aggregates as oracle
from rewake.spark.structured import divide, hosting
from rewake.spark.structured.divide import Divider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 7
ROWS = 60
_SCHEMA = "item long, price long, seq long"
Row = dict[str, Any]


def rows_of(batch: int) -> list[Row]:
    """The rows of a file: three per item and more, in an order that is not that of `seq`."""
    first = batch * ROWS
    made = [
        {"item": (n * n + batch) % KEYS, "price": (n * 31) % 97, "seq": first + n}
        for n in range(ROWS)
    ]
    return made[1::2] + made[::2]


def write_input(
    folder: Path,
    batches: int,
    start: int = 0,
    wanted: Callable[[Row], bool] = lambda _row: True,
) -> None:
    """One file per batch, with the rows that are wanted; Spark takes them by age."""
    source = folder / "input"
    source.mkdir(exist_ok=True)
    for number in range(start, start + batches):
        path = source / f"{number:04d}.json"
        rows = [row for row in rows_of(number) if wanted(row)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def averages(folder: Path, **settings: Any) -> "Callable[[DataFrame], DataFrame]":
    """Averages of four rows of an item, in the order of `seq`."""
    options = {"window": rewake.count_window(4), "order_by": "seq", "shards": 2} | settings
    return rewake.aggregate(**({"by": "item", "avg": "price", "at": folder / "state"} | options))


def read_input(session: "SparkSession", folder: Path, files: int = 1) -> "DataFrame":
    """The input as a stream, a file per batch, or several."""
    source = session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files)
    return source.json(str(folder / "input"))


def run_query(
    session: "SparkSession",
    folder: Path,
    operator: "Callable[[DataFrame], DataFrame] | None" = None,
    reached: Callable[[int, str], None] = lambda _number, _place: None,
    files: int = 1,
) -> Any:
    """Process all input there is, so many files per batch; the query, ended.

    `reached` is called with a batch's number before and after its results are written.
    """
    target = str(folder / "output")

    def sink(batch: "DataFrame", number: int) -> None:
        # A batch that Spark repeats replaces what it wrote: only the state must not see it twice.
        # Nothing is coalesced, or all shards would be in one task, and never on two executors.
        reached(number, "before")
        batch.write.mode("overwrite").parquet(f"{target}/batch={number}")
        reached(number, "after")

    query = (
        read_input(session, folder, files)
        .transform(operator or averages(folder))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def results(folder: Path) -> dict[int, list[tuple[Any, ...]]]:
    """What the sink holds: per batch, the rows in a fixed order."""
    found = {}
    for path in sorted((folder / "output").glob("batch=*")):
        tables = [pq.ParquetFile(part).read() for part in path.glob("*.parquet")]
        rows = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        found[int(path.name.partition("=")[2])] = sorted(rows)
    return found


def expected(batches: int) -> dict[int, list[tuple[Any, ...]]]:
    """What one process computes without Spark: the results that each batch adds."""
    found, before = {}, 0
    stream: list[Row] = []
    for number in range(batches):
        stream += sorted(rows_of(number), key=lambda row: row["seq"])
        rows = oracle.aggregate(
            stream, by=["item"], window=("count", 4, 4), functions=[("avg", "price", "avg_price")]
        )
        found[number] = sorted(tuple(row.values()) for row in rows[before:])
        before = len(rows)
    return found


def closed_sessions(batches: int, gap: int) -> list[tuple[Any, ...]]:
    """The sessions of all items that are over: item, start, end, average price, count."""
    stream = sorted((row for n in range(batches) for row in rows_of(n)), key=lambda r: r["seq"])
    latest, found = stream[-1]["seq"], []
    for item in {row["item"] for row in stream}:
        session: list[Row] = []
        for row in [row for row in stream if row["item"] == item]:
            if session and row["seq"] - session[-1]["seq"] >= gap:
                found.append(session)
                session = []
            session.append(row)
        found.append(session)
    return sorted(
        (
            rows[0]["item"],
            rows[0]["seq"],
            rows[-1]["seq"] + gap,
            sum(row["price"] for row in rows) / len(rows),
            len(rows),
        )
        for rows in found
        if rows[-1]["seq"] + gap <= latest
    )


def forget_plan(folder: Path, batch: int) -> None:
    """Make Spark forget that it ever planned a batch: it syncs none of these files."""
    forget_commit(folder, batch)
    for place in ("offsets", "sources/0"):
        (folder / "checkpoint" / place / str(batch)).unlink()
        (folder / "checkpoint" / place / f".{batch}.crc").unlink()


def forget_commit(folder: Path, batch: int) -> None:
    """Make Spark believe that it did not finish a batch."""
    commits = folder / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink()


# --- hosts and deaths ----------------------------------------------------------------------------


def host_pids(folder: Path) -> list[int]:
    """The shard hosts that have registered and not left."""
    found = []
    for path in sorted((folder / "state" / "hosts").glob("*.json")):
        with suppress(FileNotFoundError):  # it leaves just now
            found.append(int(json.loads(path.read_text())["pid"]))
    return found


def dying(monkeypatch: Any, folder: Path, deaths: dict[str, str]) -> None:
    """Let tasks kill a process once per entry of `deaths`: `{"1.during": "worker"}`.

    Before, during or after batch 1 is handed over by its first task, or while its rows are divided
    ("1.dividing"); the worker itself, all shard hosts, or the executor.  With "sleep" nobody dies,
    but the task takes long.  Every attempt to hand rows over leaves its name; see `attempts`.
    """
    marks, state, original = str(folder / "deaths"), str(folder / "state"), hosting.entry_of
    begun = str(folder / "attempts")
    for made in (marks, begun):
        os.makedirs(made, exist_ok=True)

    def entry_of(task: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        inner, dividing = original(task), isinstance(task, Divider)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import glob
            import json
            import os
            import signal
            import time

            from pyspark import TaskContext

            from rewake.net.queries.ancestry import nearest_jvm

            context = TaskContext.get()
            batch = context.getLocalProperty("streaming.sql.batchId")
            if not dividing:
                attempt = f"{batch}.{context.partitionId()}.{context.taskAttemptId()}"
                os.close(os.open(f"{begun}/{attempt}", os.O_CREAT))

            def reach(place: str) -> None:
                name = f"{batch}.{place}"
                if name not in deaths:
                    return
                try:
                    os.close(os.open(f"{marks}/{name}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
                if deaths[name] == "worker":
                    os.kill(os.getpid(), signal.SIGKILL)
                if deaths[name] == "executor":
                    os.kill(nearest_jvm().pid, signal.SIGKILL)
                if deaths[name] == "sleep":
                    time.sleep(8.0)
                    return
                for path in glob.glob(f"{state}/hosts/*.json"):
                    with open(path) as file:
                        os.kill(json.load(file)["pid"], signal.SIGKILL)

            def watched() -> Iterator[Any]:
                for each in batches:
                    reach("dividing" if dividing else "during")
                    yield each

            if dividing:
                yield from inner(watched())
                return
            reach("before")
            yield from inner(watched())
            reach("after")

        return run

    for module in (hosting, divide):
        monkeypatch.setattr(module, "entry_of", entry_of)


def attempts(folder: Path, batch: int) -> dict[int, int]:
    """How many attempts of each task were begun in a batch."""
    names = [path.name for path in (folder / "attempts").glob(f"{batch}.*")]
    return dict(Counter(int(name.split(".")[1]) for name in names))


def died(folder: Path) -> set[str]:
    """Where processes were killed."""
    return {path.name for path in (folder / "deaths").iterdir()}


def end_hosts(folder: Path) -> list[int]:
    """Kill the hosts of a test's folder, and wait until they are gone; says which they were."""
    ended = host_pids(folder)
    for pid in ended:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # Not before its last thread is gone does it let go of its logs.
        until(lambda pid=pid: not any(open_files(pid)), 10.0)  # type: ignore[misc]
    return ended


def open_files(pid: int) -> Iterator[str]:
    """What the threads of a process have open; threads may end while they are looked at."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield from os.listdir(f"/proc/{pid}/task/{thread}/fd")
