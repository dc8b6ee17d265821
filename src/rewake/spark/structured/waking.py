"""After a restart, the shards' host is started before a task needs it.

Its imports and its first turn take over a second of a processor; started by the first task that has
tuples for it, all of that would be part of the first batch.

    the driver    when the transform is built, where tasks run beside it in one JVM
    the divider   when the first rows are divided, on the executors of a cluster

What always holds: nobody waits here, and nothing fails here; a task that finds no host starts one.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rewake.net.queries.ancestry import Process, jvm
from rewake.net.shards.client import wake_host
from rewake.net.shards.folder import ShardFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["wake_from_driver", "wake_from_task"]

# Folders whose host this process has seen to.
_woken: set[str] = set()


def wake_from_driver(session: SparkSession, at: str, listen: str) -> None:
    """Let the host start whose shards have state, if Spark's tasks are going to run in this JVM."""
    # Through Connect there is no context here, which raises; and a task will do it anyway.
    with suppress(Exception):
        executor = _own_executor(session)
        if executor is not None and ShardFolder(at).operator() is not None:
            wake_host(at, listen, lambda: executor)


def _own_executor(session: SparkSession) -> Process | None:
    """The driver's JVM, where it runs all tasks on this machine, and with this interpreter."""
    context = session.sparkContext
    python = shutil.which(str(context.pythonExec))
    same = python is not None and os.path.abspath(python) == os.path.abspath(sys.executable)
    if not same or str(context.master).partition("[")[0] != "local":
        return None
    return jvm(int(context._jvm.java.lang.ProcessHandle.current().pid()))


def wake_from_task(at: str, listen: str, shards: int) -> None:
    """Let the host of this task's executor start; once in a process."""
    from pyspark import TaskContext  # noqa: PLC0415 (only where there is a task)

    context = TaskContext.get()
    # No more hosts than shards: executors without one are left alone.
    wanted = context is not None and context.partitionId() < shards
    if wanted and at not in _woken:
        _woken.add(at)
        wake_host(at, listen)
