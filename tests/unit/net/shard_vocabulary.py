"""Shards without Spark: processes that stand for executors, and batches given to their hosts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.net.queries.ancestry import Process, process
from rewake.net.shards.client import ShardRequest, ask_shard
from rewake.net.shards.wire import messages_of
from rewake.operators.row_digest import digest_of

QUERY, RUN, NEXT_RUN = bytes(range(16)), bytes([1] * 16), bytes([2] * 16)
SCHEMA = pa.schema([("item", pa.int64()), ("price", pa.int64()), ("seq", pa.int64())])
OPERATOR = {
    "by": ["item"],
    "window": {"kind": "count", "size": 2, "advance": 2},
    "aggregates": [{"function": "sum", "column": "price", "name": ""}],
}


def until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait; fail when it does not happen."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs."""
    return process(pid) is not None


class Executor:
    """A process that stands for the JVM of an executor."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
        found = process(self._process.pid)
        assert found is not None
        self.identity: Process = found

    def ask(
        self, at: Path, number: int, rows: list[tuple[int, int]], **changed: Any
    ) -> list[tuple[Any, ...]]:
        """Give a batch to shard 0 as a task of this executor would; the results."""
        return self.ask_all(at, number, rows, **changed)[0]

    def ask_all(
        self, at: Path, number: int, rows: list[tuple[int, int]], **changed: Any
    ) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
        """Results and figures."""
        settings: dict[str, Any] = {
            "at": str(at), "shard": 0, "shards": 2, "query": QUERY, "run": RUN, "batch": number,
            "operator": OPERATOR, "schema": SCHEMA,
        }  # fmt: skip
        answer = ask_shard(ShardRequest(**settings | changed), Tuples(rows), lambda: self.identity)
        found = [tuple(row.values()) for batch in answer.results for row in batch.to_pylist()]
        return found, answer.figures

    def host(self, at: Path) -> int:
        """The process of this executor's shard host."""
        (path,) = (at / "hosts").glob(f"*-{self.identity}.json")
        return int(json.loads(path.read_text())["pid"])

    def kill(self) -> None:
        """As the machine would."""
        self._process.kill()
        self._process.communicate()


class Tuples:
    """The rows as two messages; `seq` falls."""

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        items, prices = [row[0] for row in rows], [row[1] for row in rows]
        self._whole = pa.RecordBatch.from_pydict(
            {"item": items, "price": prices, "seq": list(range(len(rows), 0, -1))}, schema=SCHEMA
        )
        self.digest = digest_of(self._whole)

    def messages(self) -> Iterator[pa.Buffer]:
        """As tasks send them."""
        half = self._whole.num_rows // 2
        yield from messages_of(self._whole.slice(0, half))
        yield from messages_of(self._whole.slice(half))


@contextmanager
def executors(at: Path, count: int = 1) -> Iterator[list[Executor]]:
    """Some executors; they and their hosts are gone at the end."""
    started = [Executor() for _ in range(count)]
    try:
        yield started
    finally:
        hosts = host_pids(at)
        for each in started:
            each.kill()
        for pid in hosts:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            until(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def host_pids(at: Path) -> list[int]:
    """All hosts that say that they run."""
    return [int(json.loads(path.read_text())["pid"]) for path in (at / "hosts").glob("*.json")]
