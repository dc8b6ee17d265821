"""What is kept of a query's stream, for clients whom no node serves, or who ask for a time.

What always holds: it is read, never written; which columns a stream has is said by the query's
endpoint or by its log, not by who reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rewake.connectors.streams.begin import Begin
from rewake.connectors.streams.ended import NODES_FOLDER, STREAMS_FILE, query_has_ended
from rewake.connectors.streams.source import StreamSource
from rewake.log.files.layout import DESCRIPTOR
from rewake.model.connectors import SourceReader
from rewake.model.errors import DamagedLog, OperatingFault, UsageError

__all__ = ["KeptStream", "places_in"]


def places_in(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Which output of which node is which stream, by shard, as the query's folder says."""
    path = folder / STREAMS_FILE
    try:
        stored = json.loads(path.read_bytes())["streams"]
        return {
            str(name): [(str(node), int(output)) for node, output in places]
            for name, places in stored.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedLog(
            f"{path} is not readable ({error}); starting the query writes it anew"
        ) from error


@dataclass(frozen=True, slots=True)
class KeptStream:
    """The log of one shard of a stream: an output of a node, in the folder of its query."""

    folder: Path
    stream: str
    places: Sequence[tuple[str, int]]
    shard: int | None
    schema: pa.Schema

    @property
    def _place(self) -> tuple[str, int]:
        return self.places[self.shard or 0]

    @property
    def _log(self) -> Path:
        return self.folder / NODES_FOLDER / self._place[0]

    @property
    def query_has_ended(self) -> bool:
        """Whether all there will ever be is in the log."""
        return query_has_ended(self.folder)

    def position_of(self, begin: Begin) -> int:
        """The position of a beginning, as the log is now."""
        if not (self._log / DESCRIPTOR).is_file():
            raise UsageError(
                f"stream {self.stream!r} has no log, in which {begin!r} could be looked up; begin "
                "at a position, or at 'latest'"
            )
        return self._source(begin, follow=True).shards[0].first_position

    def reader(self, position: int) -> SourceReader:
        """The log from a position on, up to where it ends now."""
        if not (self._log / DESCRIPTOR).is_file():
            raise OperatingFault(
                f"the query is over, and stream {self.stream!r} has no log; read it while the "
                "query runs, or keep it with .to_stream(...)"
            )
        reader = self._source(0).open(0, 1)
        reader.seek(position)
        return reader

    def _source(self, begin: Begin, *, follow: bool = False) -> StreamSource:
        output = self._place[1]
        return StreamSource(self._log, begin, output=output, follow=follow, schema=self.schema)
