"""Early results: what the windows of a running query come to so far, for whoever asks.

Nothing is emitted, logged or changed by asking, so nothing has to be recovered.  Each shard answers
as of its own input position: the answers of several shards are not of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.clients.client import Client, Endpoint
from rewake.node.channels.packets import event_of
from rewake.node.messages import Packet, Peek, Refused

__all__ = ["EarlyResults"]

_PATIENCE_SECONDS = 10.0


class EarlyResults(Client):
    """Asks the nodes behind a stream."""

    def __init__(self, endpoint: Endpoint, stream: str, schema: pa.Schema) -> None:
        super().__init__(endpoint)
        self._stream = stream
        self._schema = schema

    def batches(self) -> list[pa.RecordBatch]:
        """The answers of all shards, in their order."""
        found = self._find(self._stream)
        asked = dict.fromkeys(each[0] for each in found.places)
        addresses = {each[0]: (each[2], each[3]) for each in found.places}
        if not asked or len(found.places) < found.shards:
            raise OperatingFault(f"not all nodes of stream {self._stream!r} run now; ask again")
        return [batch for node in asked for batch in self._ask(node, addresses[node])]

    def _ask(self, node: str, address: tuple[str, int]) -> Iterator[pa.RecordBatch]:
        connection = self._open(address, Peek(node))
        deadline = self._loop.now() + _PATIENCE_SECONDS
        while self._loop.now() < deadline:
            self._loop.run_once(0.05)
            for sender, message in list(self._inbox):
                if sender is connection and isinstance(message, Refused):
                    raise UsageError(f"stream {self._stream!r}: {message.reason}")
                if sender is connection and isinstance(message, Packet):
                    self._inbox.remove((sender, message))
                    if message.rows:
                        yield event_of(message, self._schema).batch
                    return
            if connection.closed:
                break
        raise OperatingFault(f"node {node!r} did not answer; it may be restarting: ask again")
