"""Producing into an entry of a running query: a plain blocking object for one thread.

What always holds: a producer sends again what was not durable when its node died, and never twice
what was; one that was superseded sends nothing more, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rewake.model.errors import OperatingFault, UsageError
from rewake.net.clients.client import (
    ENDPOINT_FILE,
    PATIENCE_SECONDS,
    RETRY_SECONDS,
    Client,
    Endpoint,
    failure_in,
)
from rewake.net.wire.connection import Connection
from rewake.node.channels.outbox import Outbox
from rewake.node.channels.producers import MOST_WINDOW_BYTES, Known, producers_of
from rewake.node.messages import Ack, Begins, Found, Refused
from rewake.stores import open_log_reader
from rewake.stores.places import local_path


class Producer(Client):
    """Sends tuples into an entry of a query; what `acknowledged` covers is durable there.

    Positions count the tuples of the producer of this `name`, over all its lives: after a restart,
    continue at `position`.  A later producer of the same name supersedes this one, which hears so
    by `ProducerSuperseded` from whatever it does next.  Producers that write at once need names of
    their own.

    `folder` is that of the query: once it is over, the entry's log says what nobody confirmed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        entry: str,
        *,
        name: str = "producer",
        shard: int = 0,
        window_bytes: int = 8 << 20,
        folder: Path | None = None,
    ) -> None:
        if not 0 < window_bytes <= MOST_WINDOW_BYTES:
            raise UsageError(
                f"a producer cannot have {window_bytes} bytes under way; between 1 and "
                f"{MOST_WINDOW_BYTES} can be"
            )
        self._outbox = Outbox(entry, name, endpoint.entries.get(entry))
        super().__init__(endpoint)
        self._entry = entry
        self._shard = shard
        self._window_bytes = window_bytes
        self._folder = folder
        self._connection: Connection | None = None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        """The position after the last tuple sent."""
        return self._outbox.position

    @property
    def acknowledged(self) -> int:
        """Everything before this position is durable."""
        return self._outbox.acknowledged

    def send(self, batch: pa.RecordBatch, watermark: int | None = None) -> int:
        """Send tuples; the position after them.  Waits while too much is not yet durable."""
        # Also connects again: what it sends must not wait for a `flush` that may never come.
        self._step(0.0)
        self._outbox.put(batch, watermark)
        self._push()
        while self._outbox.bytes > self._window_bytes:
            self._step(0.05)
        return self.position

    def end(self) -> None:
        """This producer sends nothing more, for ever; the entry ends when all have said so.

        `flush` waits until that is durable.
        """
        self._check_process()
        self._outbox.end()
        self._push()

    def flush(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until everything sent is durable, the end included."""
        deadline = self._loop.now() + timeout
        self._step(0.0)
        while not self._outbox.empty:
            if self._loop.now() > deadline:
                raise OperatingFault(
                    f"tuples from {self.acknowledged} to {self.position} are not durable after "
                    f"{timeout:g} s; they are kept, and sent again when the node is back"
                )
            self._step(0.05)

    def _connect(self) -> None:
        deadline = self._loop.now() + PATIENCE_SECONDS
        while not self._outbox.begun:
            self._step(0.05)
            if self._loop.now() > deadline:
                raise OperatingFault(f"the entry {self._entry!r} cannot be reached")

    def _dial(self) -> None:
        self._connection = None
        try:
            found = self._find(self._entry)
        except OperatingFault:
            if not self._is_in_log():
                raise
            return
        # Only when its node is gone: before, the log may not say all.
        place = None if found.over and not found.places else self._place_in(found)
        if place is None:
            self._wait_or_settle(found)
            return
        node, _, host, port, epoch, _ = place
        self._connection = self._open((host, port), self._outbox.hello(node))
        self._place = (node, epoch)

    def _is_in_log(self) -> bool:
        """Whether the log answers where nobody else does."""
        node, _ = self._place
        if self._folder is None or not node:
            return False
        known = _producers_in_log(self._folder / "nodes" / node)
        # A driver that dies leaves it; one that ends takes it away when its nodes have left.
        if (self._folder / ENDPOINT_FILE).exists():
            self._outbox.in_log(known)
        else:
            self._outbox.over(known)
        self._outbox.check()
        return self._outbox.empty

    def _wait_or_settle(self, found: Found) -> None:
        """The entry does not run: it will again, or its log says what there is to say."""
        node, _ = self._place
        if not found.over:
            self._loop.run_once(RETRY_SECONDS)
        elif (failure := failure_in(found)) is not None:
            raise failure
        elif self._folder is None or not node:
            raise OperatingFault(f"the query is over, and its entry {self._entry!r} with it")
        else:
            self._outbox.over(_producers_in_log(self._folder / "nodes" / node))

    def _place_in(self, found: Found) -> list[Any] | None:
        """Where the entry's node runs: the same one always; None when it does not run now."""
        # A node whose output is divided by key has a place for each part, one after the other.
        nodes = {each[0]: each for each in found.places}
        known, _ = self._place
        if known:
            return nodes.get(known)
        if found.shards and len(found.places) < found.shards:
            return None  # which shards there are is known when all run
        if 0 <= self._shard < len(nodes):
            return list(nodes.values())[self._shard]
        raise UsageError(
            f"the query has no entry {self._entry!r} with a shard {self._shard}; `explain()` lists "
            "its streams"
        )

    def _step(self, timeout: float) -> None:
        self._check_process()
        self._outbox.check()
        if self._connection is None or self._connection.closed:
            self._dial()
        elif self._superseded(self._entry):
            self._connection.close()
            self._dial()
        self._hear(timeout)

    def _hear(self, timeout: float) -> None:
        """Take what the entry says; raises what it refused."""
        self._check_process()
        self._loop.run_once(timeout)
        while self._inbox:
            connection, message = self._inbox.popleft()
            if connection is self._connection:
                self._take(message)
        self._outbox.check()

    def _take(self, message: Any) -> None:
        if isinstance(message, Begins):
            self._outbox.began(message)
            self._push()
        elif isinstance(message, Ack):
            self._outbox.acked(message)
        elif isinstance(message, Refused):
            self._outbox.refused(message)

    def _push(self) -> None:
        if self._connection is not None:
            for packet in self._outbox.unsent():
                self._connection.send(packet)


def produce(folder: str | Path, entry: str, **options: Any) -> Producer:
    """Send tuples into an entry of the query that runs in `folder`; options as of `Producer`."""
    return Producer(Endpoint.of(folder), entry, folder=local_path(folder), **options)


def _producers_in_log(path: Path) -> Mapping[str, Known]:
    """Which producers the log of an entry's node knows; none when it keeps no log."""
    if not path.is_dir():
        return {}
    with open_log_reader(path) as reader:
        return producers_of(reader.frames_backwards())[0]
