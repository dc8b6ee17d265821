"""The process that Spark forks Python workers from, with everything slow in memory already.

Spark starts it as `python -m rewake.spark.daemon pyspark.worker` when the setting
`spark.python.daemon.module` names this module (`local_session(nodes=...)` does).  It imports what a
node needs and loads the compiled kernels, then behaves as pyspark's own daemon.  A worker that is
forked afterwards, also one that replaces a killed node, finds all that in its memory.

What always holds: nothing is printed on stdout, which Spark reads; a module that cannot be imported
is left to the worker, whose error the user sees; no thread of ours runs when workers are forked; a
worker that Spark has cancelled, and hangs up on, ends without a word.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

# Its threads would be started by the import of numpy, and would be missing after a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# In this order: what others need first.
_FOR_NODES = (
    "rewake.net.small_pages",
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "rewake.net.node_host",
    "rewake.net.warm",
)

# The kind of workers that run tasks.
_TASKS = "pyspark.worker"
# A process that plans a read or a write runs no nodes; Spark starts one kind for each step of it.
_PLANNING = ("numpy", "pyarrow", "pyarrow.compute", "rewake.spark.datasource.source")


def preload(names: Sequence[str]) -> None:
    """Import all of them that can be imported, keeping stdout clean."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        for name in names:
            with suppress(Exception):
                importlib.import_module(name)
    finally:
        sys.stdout = stdout
    # A collection in a worker would write to every object, and so copy all of this memory.
    gc.collect()
    gc.freeze()


def serve(for_tasks: Sequence[str]) -> None:
    """Preload what workers of the kind that Spark names need, then be pyspark's daemon."""
    worker = sys.argv[1]
    preload(for_tasks if worker == _TASKS else (*_PLANNING, worker))
    from pyspark import daemon  # noqa: PLC0415 (only a worker's machine needs it)

    leave_quietly(daemon)
    daemon.manager()


def leave_quietly(daemon: ModuleType) -> None:
    """Let pyspark's daemon say nothing of workers whose last words found nobody to hear them.

    Spark cancels the tasks of a query that was stopped.  A worker that ends at that moment would
    leave a traceback on the user's terminal, about nothing that anybody did wrong.
    """
    original: Callable[..., int] = daemon.worker

    def worker(*connected: Any) -> int:
        try:
            return original(*connected)
        except BrokenPipeError:
            return 1  # the daemon waits until the connection is closed, which it is, and ends

    vars(daemon)["worker"] = worker


if __name__ == "__main__":
    serve(_FOR_NODES)
