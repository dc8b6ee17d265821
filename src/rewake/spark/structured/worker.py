"""Our functions in Spark's Python workers: how Spark calls them, and what they leave behind.

Spark's daemon collects garbage after every task of a worker that it will use again, over all
objects there are: with pandas and pyarrow imported that takes some 30 ms of a processor, just when
Spark commits the batch.  So a worker that has run a task of ours leaves out what was imported.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, Protocol

__all__ = ["Task", "entry_of", "settle"]

_settled = False


class Task(Protocol):
    """What `mapInArrow` is to do; plain values, because it travels to the executors."""

    def run(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Process one partition."""


def entry_of(task: Task) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        yield from task.run(batches)
        settle()

    return run


def settle() -> None:
    """Leave what there is by now out of further collections; once in a process.

    At the end of a task everything is imported that the next one needs.  What is frozen stays as
    long as the process, as modules do anyway.
    """
    global _settled  # noqa: PLW0603 (it is the process's)
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()
