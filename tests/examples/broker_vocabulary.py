"""What tests do to a broker: make streams, publish, delete and remove."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


def with_jetstream(address: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Connect, do the work, disconnect."""
    import nats

    async def connected() -> Any:
        client = await nats.connect(address)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(connected())


def create(address: str, stream: str, **limits: Any) -> None:
    """Make a stream for the subjects below its name."""
    with_jetstream(
        address,
        lambda jetstream: jetstream.add_stream(name=stream, subjects=[f"{stream}.>"], **limits),
    )


def publish(address: str, stream: str, payloads: Sequence[str], subject: str = "a") -> None:
    """Add messages, one after the other."""

    async def work(jetstream: Any) -> None:
        for payload in payloads:
            await jetstream.publish(f"{stream}.{subject}", payload.encode())

    with_jetstream(address, work)


def delete_message(address: str, stream: str, sequence: int) -> None:
    """Take one message out of the middle."""
    with_jetstream(address, lambda jetstream: jetstream.delete_msg(stream, sequence))


def remove_before(address: str, stream: str, sequence: int) -> None:
    """What a limit of the stream does: remove its oldest messages."""
    with_jetstream(address, lambda jetstream: jetstream.purge_stream(stream, seq=sequence))


def delete_stream(address: str, stream: str) -> None:
    """Remove the stream and all of its messages."""
    with_jetstream(address, lambda jetstream: jetstream.delete_stream(stream))


def numbers(first: int, last: int) -> list[str]:
    """Payloads that tell their own order."""
    return [str(number) for number in range(first, last)]
