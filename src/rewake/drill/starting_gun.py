"""A paced source that waits for a starting gun: a file that says when its first tuple is due.

Nodes take their time to start.  The watcher fires when all are up, and from then on knows when
every tuple was due, whatever dies and is started again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.connectors.item_stream import ItemReader, ItemSource
from rewake.model.stream_event import StreamEvent


def fire(path: Path, delay_seconds: float = 0.2) -> float:
    """Let the source start in a moment; the wall-clock time in ms at which its first tuple is due.

    A gun that has been fired stays fired: a run that continues an earlier one keeps its times.
    """
    if not path.exists():
        draft = path.with_suffix(".tmp")
        draft.write_text(repr((time.time() + delay_seconds) * 1e3))
        draft.rename(path)
    return float(path.read_text())


@dataclass(frozen=True, slots=True)
class WaitingSource:
    """An item source that starts when `path` exists."""

    source: ItemSource
    path: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tuples."""
        return self.source.schema

    def describe(self) -> dict[str, Any]:
        """What it is; when it starts does not matter."""
        return self.source.describe()

    def open(self, shard: int, shards: int) -> WaitingReader:
        """Open one of `shards` disjoint parts."""
        return WaitingReader(self, shard, shards)


class WaitingReader:
    """One shard; silent until the gun has been fired."""

    def __init__(self, waiting: WaitingSource, shard: int, shards: int) -> None:
        self._waiting = waiting
        self._shard = shard
        self._shards = shards
        self._position = 0
        self._reader: ItemReader | None = None

    def seek(self, position: int) -> None:
        """Go on with the stream event that holds `position`."""
        self._position = position
        if self._reader is not None:
            self._reader.seek(position)

    def read(self, now_ms: float) -> StreamEvent | None:
        """The next stream event that is due."""
        if self._reader is None and not self._start():
            return None
        assert self._reader is not None
        return self._reader.read(now_ms)

    def _start(self) -> bool:
        try:
            origin_ms = float(Path(self._waiting.path).read_text())
        except FileNotFoundError:
            return False
        source = replace(self._waiting.source, origin_ms=origin_ms)
        self._reader = source.open(self._shard, self._shards)
        self._reader.seek(self._position)
        return True

    @property
    def ended(self) -> bool:
        """Whether all of it has been read."""
        return self._reader is not None and self._reader.ended

    def close(self) -> None:
        """Release what is held."""
        if self._reader is not None:
            self._reader.close()
