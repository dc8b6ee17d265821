"""Processes by what outlives a reused number: pid and start time.

Linux's `/proc` is the source.  What always holds: two processes that had the same pid are never
taken for each other, and a process that waits to be buried does not live.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rewake.model.errors import OperatingFault

__all__ = ["Process", "jvm", "nearest_jvm", "process"]


class Process(NamedTuple):
    """A process: `start` is in clock ticks since the machine started."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        now = process(self.pid)
        return now is not None and now == self

    def __str__(self) -> str:
        return f"{self.pid}-{self.start}"

    @classmethod
    def from_text(cls, text: str) -> Process:
        """What `str` wrote."""
        pid, start = text.split("-")
        return cls(int(pid), int(start))


def process(pid: int) -> Process | None:
    """The process that has this number now, or None."""
    fields = _fields(pid)
    return None if fields is None else Process(pid, int(fields[19]))


def jvm(pid: int) -> Process | None:
    """The JVM that has this number now, or None."""
    return process(pid) if _name(pid) == "java" else None


def nearest_jvm() -> Process:
    """The JVM that this process descends from: Spark's executor, seen from a Python worker."""
    pid = os.getppid()
    while pid > 1:
        if (found := jvm(pid)) is not None:
            return found
        fields = _fields(pid)
        if fields is None:
            break
        pid = int(fields[1])
    raise OperatingFault(
        "this process was not started by a JVM: the state of a streaming query is kept beside "
        "Spark's executors, so it can be reached from Spark's Python workers alone"
    )


def _fields(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` from the third on: state, parent, ..."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
