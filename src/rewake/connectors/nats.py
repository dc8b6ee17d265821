"""Messages of a NATS JetStream stream, read by their sequence: any range, as often as asked.

A stream numbers its messages 1, 2, 3, ...; a number is never given twice.  So a range of sequences
is the same messages each time, which is what a replay needs.

What always holds: `read_range` gives the messages of [start, end) in order, each once, or raises.
Numbers may be missing from a stream, where single messages were deleted or have another subject;
messages that the stream's limits have removed from its beginning are refused as `OutOfRange`,
because whoever asks for them has not seen them.  Nothing is acknowledged, so nothing is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rewake.model.errors import BadPeer, OperatingFault, OutOfRange, UsageError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.client import JetStreamContext

__all__ = ["MESSAGES", "StreamBounds", "read_range", "refuse_what_is_gone", "stream_bounds"]

# What a message is to a reader; `time` is when the broker stored it.
MESSAGES: Final = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)

_CONNECT_SECONDS: Final = 5
_FETCH_SECONDS: Final = 10
# Bounds what is in memory at once: a message has at most 1 MB unless the broker is told otherwise.
_FETCH_MESSAGES: Final = 500
# The client drops what is above its limit; the number of messages asked for is limit enough.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """The sequences [first, next) that a stream holds, and when it was made."""

    first: int
    next: int
    created: str


def stream_bounds(servers: str, stream: str) -> StreamBounds:
    """What the stream holds now."""
    with _connected(servers) as (runner, client):
        return runner.run(_bounds(client.jetstream(), stream))


def read_range(
    servers: str, stream: str, start: int, end: int, subject: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of [start, end), of one subject if it is given, a few hundred at a time."""
    if start >= end:
        return
    with _connected(servers) as (runner, client):
        jetstream = client.jetstream()
        expected, complete = start, True
        for messages in _fetches(runner, jetstream, stream, start, subject):
            sequences = [each.metadata.sequence.stream for each in messages]
            wanted = sum(sequence < end for sequence in sequences)
            complete = complete and sequences[:wanted] == [*range(expected, expected + wanted)]
            if wanted:
                yield _batch(messages[:wanted])
                expected = sequences[wanted - 1] + 1
            if wanted < len(messages) or expected == end:
                break
        if not complete or expected < end:
            bounds = runner.run(_bounds(jetstream, stream))
            refuse_what_is_gone(bounds, stream, start)


def refuse_what_is_gone(bounds: StreamBounds, stream: str, start: int) -> None:
    """Raise when messages from `start` on have been removed by the stream's limits."""
    if bounds.first > start:
        raise OutOfRange(
            f"messages {start} to {bounds.first - 1} of the NATS stream {stream} are gone: its "
            "limits removed them before they were read; raise max_age or max_msgs, and start anew "
            "from what is there"
        )


def _fetches(
    runner: asyncio.Runner,
    jetstream: JetStreamContext,
    stream: str,
    start: int,
    subject: str | None,
) -> Iterator[list[Msg]]:
    """All that there is from `start` on, in order, until nothing is pending."""
    subscription = runner.run(_subscribe(jetstream, stream, start, subject))
    pending = runner.run(subscription.consumer_info()).num_pending
    delivered = 0
    while pending:
        messages = runner.run(_fetch(subscription, stream, min(pending, _FETCH_MESSAGES)))
        for message in messages:
            delivered += 1
            if message.metadata.sequence.consumer != delivered:
                raise BadPeer(f"NATS skipped a message of the stream {stream}; read it again")
        pending = messages[-1].metadata.num_pending
        yield messages


async def _subscribe(
    jetstream: JetStreamContext, stream: str, start: int, subject: str | None
) -> Any:
    """A consumer of this reader alone, which the broker forgets when it is not used."""
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy  # noqa: PLC0415 (optional)

    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=start,
        ack_policy=AckPolicy.NONE,
        filter_subject=subject,
        inactive_threshold=60.0,
        mem_storage=True,
    )
    return await jetstream.pull_subscribe(
        subject or "",
        stream=stream,
        config=config,
        pending_msgs_limit=_NO_LIMIT,
        pending_bytes_limit=_NO_LIMIT,
    )


async def _fetch(subscription: Any, stream: str, count: int) -> list[Msg]:
    from nats.errors import TimeoutError as NatsTimeout  # noqa: PLC0415 (optional)

    try:
        messages: list[Msg] = await subscription.fetch(count, timeout=_FETCH_SECONDS)
    except NatsTimeout as error:
        raise OperatingFault(
            f"NATS sent no message of the stream {stream} for {_FETCH_SECONDS} s although there "
            "are some; look at the broker"
        ) from error
    return messages


async def _bounds(jetstream: JetStreamContext, stream: str) -> StreamBounds:
    from nats.js.errors import NotFoundError  # noqa: PLC0415 (optional)

    try:
        info = await jetstream.stream_info(stream)
    except NotFoundError as error:
        raise UsageError(f"NATS has no stream {stream!r}; create it, or check the name") from error
    # An empty stream says that its first message is 0.
    first = max(info.state.first_seq, 1)
    return StreamBounds(first, info.state.last_seq + 1, str(info.created))


def _batch(messages: list[Msg]) -> pa.RecordBatch:
    facts = [each.metadata for each in messages]
    columns = [
        [fact.sequence.stream for fact in facts],
        [fact.timestamp for fact in facts],
        [each.subject for each in messages],
        [each.data for each in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, MESSAGES, strict=True)]
    return pa.record_batch(arrays, schema=MESSAGES)


@contextmanager
def _connected(servers: str) -> Iterator[tuple[asyncio.Runner, Client]]:
    with asyncio.Runner() as runner:
        client = runner.run(_connect(servers))
        try:
            yield runner, client
        finally:
            runner.run(client.close())


async def _connect(servers: str) -> Client:
    """A connection that is made at once or not at all: Spark repeats what fails."""
    try:
        import nats  # noqa: PLC0415 (optional)
        from nats.errors import Error  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("nats-py is not installed; pip install 'rewake[nats]'") from error

    async def quiet(_: Exception) -> None:
        """Errors are raised where they matter; the client would also print them."""

    addresses = [each.strip() for each in servers.split(",")]
    try:
        return await nats.connect(
            addresses,
            connect_timeout=_CONNECT_SECONDS,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=quiet,
        )
    except (OSError, Error) as error:
        raise OperatingFault(f"no NATS server answers at {servers}: {error}") from error
