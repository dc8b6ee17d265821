"""Reading a JetStream stream by sequence, from a real broker."""

import uuid

import pytest
from broker_vocabulary import create, delete_message, numbers, publish, remove_before

from rewake.connectors.nats import MESSAGES, read_range, stream_bounds
from rewake.model.errors import OperatingFault, OutOfRange, UsageError


@pytest.fixture
def stream(nats_address: str) -> str:
    name = f"s{uuid.uuid4().hex}"
    create(nats_address, name)
    return name


def payloads(
    address: str, stream: str, start: int, end: int, subject: str | None = None
) -> list[str]:
    batches = list(read_range(address, stream, start, end, subject))
    assert all(batch.schema.equals(MESSAGES) for batch in batches)
    return [value.decode() for batch in batches for value in batch["data"].to_pylist()]


def test_a_range_is_the_same_messages_each_time(nats_address: str, stream: str) -> None:
    """That is what Spark's repetition of a batch relies on."""
    publish(nats_address, stream, numbers(0, 1200))
    first = payloads(nats_address, stream, 101, 1101)
    assert first == numbers(100, 1100)
    publish(nats_address, stream, numbers(1200, 1210))
    assert payloads(nats_address, stream, 101, 1101) == first


def test_the_bounds_of_an_empty_stream_hold_nothing(nats_address: str, stream: str) -> None:
    """Sequences begin with 1."""
    bounds = stream_bounds(nats_address, stream)
    assert (bounds.first, bounds.next) == (1, 1)
    assert payloads(nats_address, stream, 1, 1) == []


def test_a_deleted_message_is_passed_over(nats_address: str, stream: str) -> None:
    """Whoever deleted it wanted it not to be read."""
    publish(nats_address, stream, numbers(0, 10))
    for sequence in (4, 10):
        delete_message(nats_address, stream, sequence)
    assert payloads(nats_address, stream, 3, 11) == ["2", "4", "5", "6", "7", "8"]
    assert payloads(nats_address, stream, 10, 11) == []


def test_one_subject_can_be_chosen(nats_address: str, stream: str) -> None:
    """The others leave gaps, which are no loss."""
    for number in range(6):
        publish(nats_address, stream, [str(number)], subject="ab"[number % 2])
    assert payloads(nats_address, stream, 1, 7, f"{stream}.b") == ["1", "3", "5"]
    assert payloads(nats_address, stream, 1, 4, f"{stream}.b") == ["1"]


def test_messages_that_the_limits_removed_are_refused(nats_address: str, stream: str) -> None:
    """They were not read yet, so passing over them would lose them."""
    publish(nats_address, stream, numbers(0, 10))
    remove_before(nats_address, stream, 5)
    assert payloads(nats_address, stream, 5, 11) == numbers(4, 10)
    with pytest.raises(OutOfRange, match=r"messages 3 to 4 of the NATS stream .* are gone"):
        payloads(nats_address, stream, 3, 11)


def test_a_stream_that_is_not_there_is_named(nats_address: str) -> None:
    """With what to do."""
    with pytest.raises(UsageError, match="no stream 'nothing'; create it"):
        stream_bounds(nats_address, "nothing")


def test_a_broker_that_does_not_answer_is_named() -> None:
    """At once; Spark tries again by itself."""
    with pytest.raises(OperatingFault, match=r"no NATS server answers at nats://127\.0\.0\.1:1"):
        stream_bounds("nats://127.0.0.1:1", "purchases")
