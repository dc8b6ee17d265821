"""The process that Spark forks Python workers from, with everything slow in memory already.

Spark starts it as `python -m rewake.spark.daemon pyspark.worker` when the setting
`spark.python.daemon.module` names this module (`local_session(nodes=...)` does).  It imports what a
node needs and loads the compiled kernels, then behaves as pyspark's own daemon.  A worker that is
forked afterwards, also one that replaces a killed node, finds all that in its memory.

What always holds: nothing is printed on stdout, which Spark reads; a module that cannot be imported
is left to the worker, whose error the user sees; no thread of ours runs when workers are forked; a
worker that Spark has cancelled, and hangs up on, ends without a word, wherever it is, and so does a
daemon that Spark has left.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

# Its threads would be started by the import of numpy, and would be missing after a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# In this order: what others need first.
_FOR_NODES = (
    "rewake.net.servers.small_pages",
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "rewake.net.servers.server",
    "rewake.net.nodes.warm",
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
    # As pyspark does, but before the imports: Ctrl-C means the driver, which then ends this one.
    os.setpgid(0, 0)
    worker = sys.argv[1]
    preload(for_tasks if worker == _TASKS else (*_PLANNING, worker))
    from pyspark import daemon  # noqa: PLC0415 (only a worker's machine needs it)

    leave_quietly(daemon)
    try:
        daemon.manager()
    except BrokenPipeError:
        # Spark left during the imports, and nobody hears the port.  At once: an exit in good order
        # would write it once more.
        os._exit(1)


def leave_quietly(daemon: ModuleType) -> None:
    """Let pyspark's daemon say nothing of workers on which Spark has hung up.

    Spark cancels the tasks of a query that was stopped, and ends the daemon of a session that was.
    A worker may be at any place then: saying its number, waiting for the secret, reading its task,
    sending its last words.  It finds the connection reset, broken or at its end, and the daemon
    would print a traceback, about nothing that anybody did wrong.

    What a task does wrong never comes here: a worker tells it to Spark and exits.
    """
    vars(daemon)["traceback"] = _Traceback(daemon.traceback)
    told = sys.unraisablehook

    def tell(unraisable: "sys.UnraisableHookArgs") -> None:
        # A signal to leave that came where Python cannot raise, as between two forks.  The daemon
        # leaves all the same, because Spark closes its input, too.
        if not isinstance(unraisable.exc_value, SystemExit):
            told(unraisable)

    sys.unraisablehook = tell


class _Traceback:
    """The module `traceback`, as pyspark's daemon uses it; of Spark's leaving it says nothing."""

    def __init__(self, original: ModuleType) -> None:
        self._original = original

    def print_exc(self) -> None:
        """What ended a worker."""
        if not _hung_up(sys.exc_info()[1]):
            self._original.print_exc()

    def format_exc(self) -> str:
        """What a worker could not send, where Spark has it printed."""
        return str(self._original.format_exc())


def _hung_up(error: BaseException | None) -> bool:
    """Whether Spark closed the connection, or asked the daemon to leave while it forked."""
    return isinstance(error, BrokenPipeError | ConnectionResetError | EOFError | SystemExit)


if __name__ == "__main__":
    serve(_FOR_NODES)
