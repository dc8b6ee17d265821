"""A source that a test opens bit by bit, so that what has been read is a fact and not a guess.

The gate is a file that holds how many tuples of each shard may be read; without it, none.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.model.connectors import Source, SourceReader
from rewake.model.stream_event import StreamEvent


@dataclass(frozen=True)
class GatedSource:
    """A source whose stream events come when the gate at `path` allows for them."""

    source: Source
    path: str

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def describe(self) -> dict[str, Any]:
        return self.source.describe()

    def open(self, shard: int, shards: int) -> "GatedReader":
        return GatedReader(self.source.open(shard, shards), Path(self.path))


class GatedReader:
    """One shard."""

    def __init__(self, reader: SourceReader, path: Path) -> None:
        self._reader = reader
        self._path = path
        self._allowed = 0
        self._waiting: StreamEvent | None = None

    def seek(self, position: int) -> None:
        self._waiting = None
        self._reader.seek(position)

    def read(self, now_ms: float) -> StreamEvent | None:
        if self._waiting is None:
            self._waiting = self._reader.read(now_ms)
        event = self._waiting
        if event is None or (event.end > self._allowed and event.end > self._look()):
            return None
        self._waiting = None
        return event

    def _look(self) -> int:
        if self._path.exists():
            self._allowed = int(self._path.read_text())
        return self._allowed

    @property
    def ended(self) -> bool:
        return self._waiting is None and self._reader.ended

    def close(self) -> None:
        self._reader.close()


def open_gate(path: Path, tuples: int) -> None:
    """Let so many tuples of each shard pass; atomically."""
    draft = path.with_suffix(".tmp")
    draft.write_text(str(tuples))
    draft.rename(path)
