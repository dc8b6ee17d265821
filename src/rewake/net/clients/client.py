"""Clients of a running query, and subscribing to a stream; `producer` beside it produces into one.

Both are plain blocking objects for one thread.  What always holds: a subscription delivers every
stream event of a shard once, in order, also across restarts of the node that serves it.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from rewake.connectors.streams.begin import EARLIEST, LATEST, Begin, Moment, place_in
from rewake.model.connectors import SourceReader
from rewake.model.errors import (
    MisfitQuery,
    OperatingFault,
    QueryFailed,
    SchemaMismatch,
    UsageError,
)
from rewake.model.near import did_you_mean
from rewake.model.schemas import difference
from rewake.model.stream_event import IDLE, StreamEvent
from rewake.net.clients.kept import KeptStream, places_in
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

    `begin` is "earliest" (what is still there; what holds unless somebody says otherwise), "latest"
    (what comes from now on), a position, or a time.  `kept` is the stream's log: it is read once
    the query is over and the node has left, and says where a time is.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        stream: str,
        schema: pa.Schema,
        *,
        shard: int | None = None,
        begin: Begin = EARLIEST,
        name: str = "client",
        kept: KeptStream | None = None,
    ) -> None:
        written = endpoint.streams.get(stream, schema)
        if wrong := difference(schema, written, "the schema that was given", f"stream {stream!r}"):
            raise SchemaMismatch(f"{wrong}; give the schema of the stream")
        place = place_in(f"stream {stream!r}: begin", begin)
        if isinstance(place, dict):
            raise UsageError(
                f"stream {stream!r}: begin={begin!r} gives positions of several shards; each is "
                "read with a subscription of its own, so give one position"
            )
        super().__init__(endpoint)
        self._kept = kept
        # Where to begin, until that is a position.
        self._begin: str | Moment | None = None if isinstance(place, int) else place
        self._log: SourceReader | None = None
        # Why the query came to its end before its streams did, if so.
        self._failure: QueryFailed | None = None
        self._stream = stream
        self._schema = schema
        self._shard = shard
        self._name = name
        self.position = place if isinstance(place, int) else 0
        self._connection: Connection | None = None
        self._refused_at: float | None = None
        self.ended = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is read."""
        return self._schema

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
                message = Subscribe(node, output, self._name, 0, self._wanted(), epoch)
                self._connection = self._open((host, port), message)
                self._place = (node, epoch)
                return
        if found.over:
            self._turn_to_the_log(found)
        else:
            self._loop.run_once(RETRY_SECONDS)

    def _find(self, stream: str) -> Found:
        """Where it is; a driver may leave when all that there was is in the log."""
        try:
            return super()._find(stream)
        except OperatingFault:
            if self._kept is None or not self._kept.query_has_ended:
                raise
            return Found(stream, len(self._kept.places), over=True)

    def _wanted(self) -> int:
        """From where the node is to send; negative: whatever comes next."""
        if self._begin == LATEST:
            return -1
        if isinstance(self._begin, Moment):
            self.position, self._begin = self._look_up(self._begin.words), None
        return self.position

    def _look_up(self, begin: Begin) -> int:
        if self._kept is None:
            raise UsageError(f"begin={begin!r} can be looked up in a query's folder alone")
        return self._kept.position_of(begin)

    def _turn_to_the_log(self, found: Found) -> None:
        """No node will serve the stream again."""
        self._failure = failure_in(found)
        try:
            if self._kept is None:
                raise OperatingFault(
                    f"the query is over, and nobody serves stream {self._stream!r} any more; read "
                    "it from its log (rewake.subscribe does, or spark.read.format('rewake'))"
                )
            if self._begin is not None:
                said = self._begin.words if isinstance(self._begin, Moment) else self._begin
                self.position, self._begin = self._kept.position_of(said), None
            self._log = self._kept.reader(self.position)
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
            self._begin = None if self._begin == LATEST else self._begin
        elif isinstance(message, Refused):
            self._refused(connection, message)
        elif isinstance(message, Packet):
            self._refused_at = self._begin = None
            return self._accept(connection, message)
        return None

    def _refused(self, connection: Connection, message: Refused) -> None:
        """Ask again, where that helps; what does not pass in a moment, lasts."""
        connection.close()
        if self._begin == EARLIEST and self._kept is not None and not message.later:
            # The beginning is no longer there; it may go on moving while we ask for it.
            self.position = self._kept.position_of(EARLIEST)
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


def subscribe(
    folder: str | Path,
    stream: str,
    *,
    shard: int | None = None,
    begin: Begin = EARLIEST,
    name: str = "client",
) -> Subscription:
    """Read a stream of the query that runs in `folder`, live.

    Which columns it has, the query says.  `begin` is "earliest", "latest", a position or a time.
    When the query comes to its end, the rest is read from the log.
    """
    place, endpoint = local_path(folder), Endpoint.of(folder)
    if stream not in endpoint.streams:
        hint = did_you_mean(stream, endpoint.streams) or ";"
        known = ", ".join(sorted(endpoint.streams)) or "none"
        raise UsageError(f"the query in {folder} has no stream {stream!r}{hint} it has {known}")
    schema, places = endpoint.streams[stream], places_in(place).get(stream, [])
    check_shard_of(stream, shard, len(places))
    kept = KeptStream(place, stream, places, shard, schema)
    return Subscription(endpoint, stream, schema, shard=shard, begin=begin, name=name, kept=kept)


def failure_in(found: Found) -> QueryFailed | None:
    """Why the query came to its end before its streams did, as its driver hears it; None if not."""
    if not found.error:
        return None
    return MisfitQuery(found.error) if found.misfit else QueryFailed(found.error)
