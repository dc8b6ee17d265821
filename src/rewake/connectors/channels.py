"""What the ends of sinks have in common: channels that are taken in order, and commits of them.

The host writes each channel's stream events in order, from `position(channel)` or before; what is
committed already is left out.  A commit is decided once and then made as often as it takes: a
failure that is a matter of waiting (no room, nobody answers) leaves all as it is, so that `commit`
can be called again; any other leaves the writer unusable, and its successor sees what is there.

What always holds: per channel, what is committed reaches to `position`; what is sealed for the
commit under way, and then what waits for the next one, follow without a gap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rewake.connectors.cutting import schema_json
from rewake.model.connectors import SinkLook
from rewake.model.errors import SchemaMismatch, StorageFull, Unavailable, WriterFailed
from rewake.model.stream_event import StreamEvent

__all__ = ["ChannelWriter", "Reach"]


@dataclass(slots=True)
class Reach:
    """Up to where a channel is committed, and up to where it was taken."""

    committed: int = 0
    taken: int = 0


class ChannelWriter(ABC):
    """One shard's end of a sink; `name` is what messages call it."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._name = name
        self._schema = schema
        self._channels: dict[int, Reach] = {}
        self._failure: Exception | None = None
        # From which logs the tuples are: what was kept with the last commit, and what is to be.
        self._origins: Mapping[str, Any] | None = None
        self._binding: Mapping[str, Any] | None = None

    def _found(self, look: SinkLook) -> None:
        """This is there from before."""
        for channel, position in look.positions.items():
            self._channels[channel] = Reach(position, position)
        self._origins = self._binding = look.origins

    @property
    def origins(self) -> Mapping[str, Any] | None:
        """From which logs what is committed is; None when nothing says so."""
        return self._origins

    def bind(self, origins: Mapping[str, Any]) -> None:
        """Say with the next commit, no later than its tuples come, from which logs they are."""
        self._binding = origins

    @property
    def _news(self) -> Mapping[str, Any] | None:
        """What the next commit has to say of that, if anything."""
        return None if self._binding == self._origins else self._binding

    def position(self, channel: int) -> int:
        """Input of this channel up to here (exclusive) is committed."""
        return self._channels[channel].committed if channel in self._channels else 0

    def write(self, channel: int, event: StreamEvent) -> None:
        """Take a stream event; it counts when a later `commit` returns."""
        self._check_usable()
        reach = self._channels.setdefault(channel, Reach())
        fresh = event.since(reach.taken)
        if fresh is None:
            return
        assert fresh.start == reach.taken, (
            f"channel {channel} goes on at {reach.taken}, not at {fresh.start}"
        )
        if fresh.batch.num_rows:
            self._check_columns_of(fresh.batch)
            self._hold(channel, fresh.batch)
        reach.taken = fresh.end

    def _commit(self, publish: Callable[[], None]) -> None:
        """Publish what is sealed, until nothing is left to seal."""
        self._check_usable()
        try:
            while self._seal():
                publish()
        except (StorageFull, Unavailable):
            raise
        except Exception as error:
            self._failure = error
            raise

    @abstractmethod
    def _hold(self, channel: int, batch: pa.RecordBatch) -> None:
        """Keep tuples for the next commit."""

    @abstractmethod
    def _seal(self) -> bool:
        """Decide what the next commit holds, unless it is decided; False when there is nothing."""

    def _check_columns_of(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self._schema):
            raise SchemaMismatch(
                f"{self._name} takes {schema_json(self._schema)}, not {schema_json(batch.schema)}; "
                "open it with the columns of its stream"
            )

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise WriterFailed(
                f"{self._name} has stopped: {self._failure}; open it again to go on from what is "
                "committed"
            ) from self._failure
