"""Who is compared, how each is set up, and what each cannot do.

What always holds: each has fault tolerance switched on as its own users would, two cores and the
local disk.  What differs in durability is said in its settings: Spark does not sync what it writes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from rewake.spark.java import find_java
from rewake.spark.session import launch_environment
from rewake_lab.bench.peers.job import USUAL_INTERVAL_US, Job, Workload
from rewake_lab.bench.peers.setup import PROGRAMS, Places

_NODES: Final = "rewake_lab.bench.peers.nodes_program"
_SPARK: Final = "rewake_lab.bench.peers.spark_program"
_FLINK_MEMORY: Final = "-Xmx2g"
_NO_CLOSING: Final = (
    "in Bytewax a window of a key closes when that key's next tuple comes, or by the system's "
    "clock: there is no tuple from which to measure"
)
_NO_JAVAC: Final = "Spark's count windows are a class in Java: {}"


@dataclass(frozen=True, slots=True)
class Contender:
    """One of those that are compared; `missing` says how to add one that is not installed.

    `cannot` has workloads that it does not run, `no_latency` those in which it has none.
    `interval_us`: between tuples, for its throughput in 10-second windows; `any_interval`: whether
    its source can have others than the usual one.  `in_files`: its bytes are counted in its files.
    """

    name: str
    ours: bool
    settings: str
    command: Callable[[Job], list[str]]
    missing: str = ""
    cannot: Mapping[Workload, str] = field(default_factory=dict)
    no_latency: Mapping[Workload, str] = field(default_factory=dict)
    interval_us: int = USUAL_INTERVAL_US
    any_interval: bool = True
    in_files: bool = True


@cache
def environ() -> Mapping[str, str]:
    """As this process's, with the Java that Rewake found, and without what misleads Spark.

    Found out once: looking for Java takes time that would count as recovery.
    """
    java = find_java()
    changed = launch_environment(java) if java.found else {}
    kept = {name: value for name, value in os.environ.items() if name not in changed}
    return kept | {name: value for name, value in changed.items() if value is not None}


def contenders(places: Places) -> list[Contender]:
    """All, ours first; some may be missing."""
    return [
        _nodes("processes", "processes of this machine"),
        _nodes("spark", "tasks of a local Spark"),
        _structured(),
        _spark(places),
        _flink(places),
        _bytewax(places),
    ]


def _nodes(host: str, where: str) -> Contender:
    names = {"processes": "Rewake nodes", "spark": "Rewake nodes on Spark"}

    def command(job: Job) -> list[str]:
        return [sys.executable, "-m", _NODES, host, *job.words()]

    return Contender(
        names[host],
        ours=True,
        settings=f"source, aggregate and filter as {where}; recover_within='1s', "
        "stable writes: synced before results are forwarded",
        command=command,
        any_interval=False,
    )


def _structured() -> Contender:
    def command(job: Job) -> list[str]:
        return [sys.executable, "-m", _SPARK, "ours", "-", *job.words()]

    return Contender(
        "Rewake in Structured Streaming",
        ours=True,
        settings="rewake.aggregate, 2 shards, logs synced for every batch; Spark local[2], 4 GB, "
        "batches of 1,000,000 rows, at half rate of all that is due",
        command=command,
    )


def _spark(places: Places) -> Contender:
    classes, problem = places.spark_classes()

    def command(job: Job) -> list[str]:
        return [sys.executable, "-m", _SPARK, "own", str(classes or "-"), *job.words()]

    return Contender(
        "Spark's own state",
        ours=False,
        settings="RocksDB with changelog; groupBy().agg(avg), count windows by "
        "flatMapGroupsWithState in Java; Spark local[2], 4 GB, 2 shuffle partitions, batches as "
        "above; checkpoint files are not synced",
        command=command,
        cannot={} if classes else {Workload.COUNT: _NO_JAVAC.format(problem)},
    )


def _flink(places: Places) -> Contender:
    classes, jars, problem = places.flink_classes()
    java = find_java()

    def command(job: Job) -> list[str]:
        path = f"{classes}{os.pathsep}{jars}"
        return [str(java.executable), _FLINK_MEMORY, "-cp", path, "FlinkPeer", *job.words()]

    return Contender(
        "Apache Flink",
        ours=False,
        settings=f"{places.version('flink', 'apache-flink')}; DataStream API in Java in one "
        f"process, parallelism 2, {_FLINK_MEMORY}, heap state, exactly-once checkpoints every "
        "second, synced; countWindow(10), ValueState, TumblingEventTimeWindows",
        command=command,
        missing=problem,
    )


def _bytewax(places: Places) -> Contender:
    python = places.python("bytewax")

    def command(job: Job) -> list[str]:
        return [str(python), str(PROGRAMS / "bytewax_program.py"), *job.words()]

    return Contender(
        "Bytewax",
        ours=False,
        settings=f"{places.version('bytewax', 'bytewax')}; 2 processes, recovery with a snapshot "
        "every second, synced (SQLite); stateful_map, and fold_window with an EventClock",
        command=command,
        missing=places.lacks("bytewax"),
        no_latency={Workload.TIME: _NO_CLOSING},
        # As slow as it is, few of its windows would close otherwise.
        interval_us=200,
        in_files=False,
    )


def chosen(found: list[Contender], names: list[str]) -> list[Contender]:
    """Those whose names contain one of these words, whatever the case; all without any."""
    if not names:
        return found
    return [each for each in found if any(name.lower() in each.name.lower() for name in names)]


def folder_of(name: str) -> Path:
    """A name for its folder."""
    return Path("".join(letter if letter.isalnum() else "-" for letter in name.lower()))
