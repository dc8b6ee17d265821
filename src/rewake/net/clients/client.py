"""Clients of a running query, and subscribing to a stream; `producer` beside it produces into one.

Both are plain blocking objects for one thread.  What always holds: a subscription delivers every
stream event of a shard once, in order, also across restarts of the node that serves it.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from rewake.connectors.streams.source import StreamSource
from rewake.log.files.layout import DESCRIPTOR, MAX_COUNT
from rewake.model.connectors import SourceReader
from rewake.model.errors import (
    MisfitQuery,
    OperatingFault,
    QueryFailed,
    SchemaMismatch,
    UsageError,
)
from rewake.model.schemas import difference
from rewake.model.stream_event import IDLE, StreamEvent
from rewake.net.wire.authentication import Token
from rewake.net.wire.connection import Connection, Unanswered
from rewake.net.wire.loop import Loop
from rewake.node.channels.packets import event_of
from rewake.node.messages import (
    Ack,
    Address,
    Begins,
    Find,
    Found,
    Packet,
    Refused,
    Subscribe,
)
from rewake.stores.places import local_path

ENDPOINT_FILE = "endpoint.json"
STREAMS_FILE = "streams.json"
RETRY_SECONDS = 0.05
PATIENCE_SECONDS = 30.0
_REFUSED_SECONDS = 3.0
_SILENCE_SECONDS = 1.0
# In a crowd of strangers each attempt has a fair chance (`wire.doorway`): so many are proof,
# where seconds are not, for a machine that is busy makes few attempts in them.
_TURNED_AWAY = 50


class Endpoint(NamedTuple):
    """Where a query's coordinator listens, and the token that proves who asks."""

    address: Address
    token: Token
    # What subscribers of each stream read, and producers of each entry write, where that is known.
    streams: Mapping[str, pa.Schema] = MappingProxyType({})
    entries: Mapping[str, pa.Schema] = MappingProxyType({})

    def to_json(self) -> str:
        """For the query's folder."""
        return json.dumps(
            {
                "address": list(self.address),
                "token": self.token.reveal(),
                "streams": {name: _schema_text(each) for name, each in self.streams.items()},
                "entries": {name: _schema_text(each) for name, each in self.entries.items()},
            }
        )

    @classmethod
    def of(cls, folder: str | Path) -> Endpoint:
        """The endpoint of the query that runs in `folder`."""
        path = local_path(folder) / ENDPOINT_FILE
        try:
            value = json.loads(path.read_text())
            host, port = value["address"]
            streams, entries = (
                {name: _schema_in(text) for name, text in value[each].items()}
                for each in ("streams", "entries")
            )
            return cls((str(host), int(port)), Token.from_text(value["token"]), streams, entries)
        except FileNotFoundError:
            raise UsageError(f"no query runs in {folder}: {path} is not there") from None
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise UsageError(f"{path} is not an endpoint of a query ({error})") from error


def check_shard_of(stream: str, shard: int | None, shards: int) -> None:
    """Raise UsageError unless this is a shard of the stream, or the only one."""
    if shard is None and shards > 1:
        raise UsageError(
            f"stream {stream!r} has {shards} shards, each with tuples of its own: read each with a "
            f"subscription of its own, shard=0 to shard={shards - 1}"
        )
    if not 0 <= (shard or 0) < shards:
        raise UsageError(
            f"the query has {shards} shards of a stream {stream!r}, not shard {shard or 0}; "
            "`explain()` lists its streams"
        )


def _schema_text(schema: pa.Schema) -> str:
    return b64encode(schema.serialize().to_pybytes()).decode()


def _schema_in(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text, validate=True)))


class Client:
    """A loop, and a way to find nodes; a `Handler` of the loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._process = os.getpid()
        self._loop = Loop()
        self._inbox: deque[tuple[Connection, Any]] = deque()
        # The node this client talks to, the epoch of its attempt, and when it last said something.
        self._place = ("", 0)
        self._heard = self._loop.now()

    def _check_process(self) -> None:
        """A fork has the same connection and the same positions: each would take the other's."""
        if os.getpid() != self._process:
            raise UsageError(
                f"this {type(self).__name__.lower()} was made in process {self._process}, and is "
                f"used in process {os.getpid()}, a fork of it; make one there, with a name of its "
                "own"
            )

    def authenticated(self, connection: Connection) -> None:
        """Nothing to do."""

    def received(self, connection: Connection, messages: list[Any]) -> None:
        """Keep them in order."""
        self._heard = self._loop.now()
        self._inbox.extend((connection, message) for message in messages)

    def closed(self, connection: Connection) -> None:
        """It shows in the connection itself."""

    def _open(self, address: Address, first: object) -> Connection:
        connection = Connection.connect(address, self._endpoint.token, self._loop.now())
        connection.send(first)
        self._loop.add(connection, self)
        return connection

    def _find(self, stream: str) -> Found:
        """Ask the coordinator; it may be busy starting the nodes."""
        asked = self._open(self._endpoint.address, Find(stream))
        begun = self._loop.now()
        unanswered, turned_away = Unanswered(begun), 0
        while self._loop.now() < begun + PATIENCE_SECONDS:
            if unanswered.is_late(asked, self._loop.now()):
                asked.close()
                asked = self._open(self._endpoint.address, Find(stream))
            if asked.closed:
                # It was full, or nobody said a word for long; who hangs up ever again is not ours.
                turned_away += self._loop.now() < asked.deadline
                refused = (
                    turned_away >= _TURNED_AWAY and self._loop.now() > begun + _REFUSED_SECONDS
                )
                if refused or not asked.turned_away:
                    break
                asked = self._open(self._endpoint.address, Find(stream))
            self._loop.run_once(0.05)
            for connection, message in list(self._inbox):
                if connection is asked and isinstance(message, Found):
                    self._inbox.remove((connection, message))
                    asked.close()
                    return message
        raise OperatingFault(f"the coordinator did not say where {stream!r} is: {asked.ended}")

    def _superseded(self, stream: str) -> bool:
        """Whether the node may run elsewhere by now; asked when it has been silent for a while.

        One that is cut off, or only sleeps, never hangs up.  Where nobody can say, it may: whoever
        looks for it anew finds out, or knows where else to look.
        """
        if self._loop.now() - self._heard < _SILENCE_SECONDS:
            return False
        self._heard = self._loop.now()
        node, epoch = self._place
        try:
            found = self._find(stream)
        except OperatingFault:
            return True
        return any(each[0] == node and each[4] > epoch for each in found.places)

    def close(self) -> None:
        """Hang up."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Subscription(Client):
    """Reads one shard of a stream from a position on, live.

    `past` opens the stream's log at a position: it is asked once the query is over and the node
    has left.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        stream: str,
        schema: pa.Schema,
        *,
        shard: int | None = None,
        position: int = 0,
        name: str = "client",
        past: Callable[[int], SourceReader] | None = None,
    ) -> None:
        written = endpoint.streams.get(stream, schema)
        if wrong := difference(schema, written, "the schema that was given", f"stream {stream!r}"):
            raise SchemaMismatch(f"{wrong}; give the schema of the stream")
        if type(position) is not int or not 0 <= position <= MAX_COUNT:
            raise UsageError(
                f"stream {stream!r}: a position is a whole number from 0 on, below 2**62, not "
                f"{position!r}; 0 is the beginning, and `position` of a subscription where to go on"
            )
        super().__init__(endpoint)
        self._past = past
        self._log: SourceReader | None = None
        # Why the query came to its end before its streams did, if so.
        self._failure: QueryFailed | None = None
        self._stream = stream
        self._schema = schema
        self._shard = shard
        self._name = name
        self.position = position
        self._connection: Connection | None = None
        self._refused_at: float | None = None
        self.ended = False

    def read(self, timeout: float | None = None) -> StreamEvent | None:
        """The next stream event; None when the stream has ended or the time is over."""
        self._check_process()
        deadline = None if timeout is None else self._loop.now() + timeout
        while not self.ended:
            while self._inbox:
                event = self._take(*self._inbox.popleft())
                if event is not None:
                    return event
            if self._log is not None:
                event = self._read_log(self._log)
                if event is not None:
                    return event
                continue
            if deadline is not None and self._loop.now() >= deadline:
                return None
            self._stay_connected()
            wait = 0.05 if deadline is None else min(0.05, max(0.0, deadline - self._loop.now()))
            self._loop.run_once(wait)
        return None

    def __iter__(self) -> Iterator[StreamEvent]:
        while (event := self.read()) is not None:
            yield event

    def _stay_connected(self) -> None:
        if self._connection is not None and not self._connection.closed:
            if not self._superseded(self._stream):
                return
            self._connection.close()
        self._connection = None
        found = self._find(self._stream)
        check_shard_of(self._stream, self._shard, found.shards)
        for node, output, host, port, epoch, shard in found.places:
            if shard == (self._shard or 0):
                message = Subscribe(node, output, self._name, 0, self.position, epoch)
                self._connection = self._open((host, port), message)
                self._place = (node, epoch)
                return
        if found.over:
            self._turn_to_the_log(found)
        else:
            self._loop.run_once(RETRY_SECONDS)

    def _turn_to_the_log(self, found: Found) -> None:
        """No node will serve the stream again."""
        self._failure = failure_in(found)
        try:
            if self._past is None:
                raise OperatingFault(
                    f"the query is over, and nobody serves stream {self._stream!r} any more; read "
                    "it from its log (rewake.subscribe does, or spark.read.format('rewake'))"
                )
            self._log = self._past(self.position)
        except OperatingFault:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _read_log(self, log: SourceReader) -> StreamEvent | None:
        event = log.read(0.0)
        if event is None:
            log.close()
            if self._failure is not None:
                raise self._failure
            self.ended = True
            return None
        return self._fresh(event)

    def _take(self, connection: Connection, message: Any) -> StreamEvent | None:
        if connection is not self._connection:
            return None
        if isinstance(message, Begins):
            self.position = max(self.position, message.position)
        elif isinstance(message, Refused):
            self._refused(connection, message)
        elif isinstance(message, Packet):
            self._refused_at = None
            return self._accept(connection, message)
        return None

    def _refused(self, connection: Connection, message: Refused) -> None:
        """Ask again, where that helps; what does not pass in a moment, lasts."""
        connection.close()
        if self._refused_at is None or message.later:
            self._refused_at = self._loop.now()
        if self._loop.now() - self._refused_at > _REFUSED_SECONDS:
            raise OperatingFault(
                f"stream {self._stream!r} cannot be read from position {self.position}: "
                f"{message.reason}"
            )
        self._loop.run_once(RETRY_SECONDS)

    def _accept(self, connection: Connection, packet: Packet) -> StreamEvent | None:
        if packet.final:
            self.ended = True
            return None
        event = self._fresh(event_of(packet, self._schema))
        if event is None:
            return None
        connection.send(Ack(event.end, event.end))
        if event.watermark != IDLE:
            return event
        # Silence is between nodes; a reader notices it without being told.
        return replace(event, watermark=None) if event.batch.num_rows else None

    def _fresh(self, event: StreamEvent) -> StreamEvent | None:
        """What of a stream event has not been read yet."""
        if event.end <= self.position and event.start != self.position:
            return None
        if event.start < self.position:
            event = event.split(self.position)[1]
        self.position = event.end
        return event


def subscribe(folder: str | Path, stream: str, schema: pa.Schema, **options: Any) -> Subscription:
    """Read a stream of the query that runs in `folder`, live; options as of `Subscription`.

    When the query comes to its end, the rest is read from the log.
    """
    place = local_path(folder)

    def past(position: int) -> SourceReader:
        places = json.loads((place / STREAMS_FILE).read_bytes())["streams"]
        node, output = places[stream][options.get("shard") or 0]
        return past_of(place, stream, node, output, schema, position)

    return Subscription(Endpoint.of(folder), stream, schema, **{"past": past} | options)


def past_of(
    folder: Path, stream: str, node: str, output: int, schema: pa.Schema, position: int
) -> SourceReader:
    """The log of a stream whose query is over, at a position."""
    log = folder / "nodes" / node
    if not (log / DESCRIPTOR).is_file():
        raise OperatingFault(
            f"the query is over, and stream {stream!r} has no log; read it while the query runs, "
            "or keep it with .to_stream(...)"
        )
    reader = StreamSource(log, output=output, follow=False, schema=schema).open(0, 1)
    reader.seek(position)
    return reader


def failure_in(found: Found) -> QueryFailed | None:
    """Why the query came to its end before its streams did, as its driver hears it; None if not."""
    if not found.error:
        return None
    return MisfitQuery(found.error) if found.misfit else QueryFailed(found.error)
