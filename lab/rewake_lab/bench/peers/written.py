"""How many bytes a contender writes for fault tolerance.

Files are watched: what counts is everything that appears in a folder, also if it is gone again a
moment later.  A database that is rewritten in place is counted by the kernel instead: what its
processes sent to the disk.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LOOK_SECONDS: Final = 0.1


class Timeline(ABC):
    """So many bytes by then: looks now and then, from entering to leaving."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int]] = []
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._looking = threading.Thread(target=self._look_on, daemon=True)

    @abstractmethod
    def _bytes(self) -> int:
        """So many now."""

    def bytes(self) -> int:
        """Look now."""
        with self._lock:
            found = self._bytes()
            self._looks.append((time.time() * 1e3, found))
            return found

    def bytes_at(self, at_ms: float) -> int:
        """By that moment, or a little after."""
        with self._lock:
            place = bisect_left(self._looks, (at_ms, -1))
            if place < len(self._looks):
                return self._looks[place][1]
        return self.bytes()

    def _look_on(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            self.bytes()

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._looking.join()


class FilesWritten(Timeline):
    """The bytes of all files that were ever seen in a folder, each at its largest.

    Hidden files are left out: checksums, and what is not yet under its name.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._sizes: dict[tuple[str, int], int] = {}

    def _bytes(self) -> int:
        for path, number, size in _files(self._folder):
            key = (path, number)
            self._sizes[key] = max(size, self._sizes.get(key, 0))
        return sum(self._sizes.values())


class ProcessesWrote(Timeline):
    """What the kernel counts of processes: bytes that they caused to be sent to storage."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        super().__init__()
        self._pids = pids
        self._most: dict[int, int] = {}

    def _bytes(self) -> int:
        for pid in self._pids():
            self._most[pid] = max(self._most.get(pid, 0), _sent_to_storage(pid))
        return sum(self._most.values())


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Path, inode and size; a folder or file may be gone before it is looked at."""
    todo = [str(folder)]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    elif not entry.name.startswith("."):
                        status = entry.stat(follow_symlinks=False)
                        yield entry.path, status.st_ino, status.st_size


def _sent_to_storage(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0
