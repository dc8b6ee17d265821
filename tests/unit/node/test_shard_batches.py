"""Which micro-batches a shard takes, repeats and refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewake.model.errors import (
    CheckpointBehindLog,
    CheckpointWithoutLog,
    DamagedFrame,
    LogBehindCheckpoint,
    OtherQuery,
    OtherRows,
    UsageError,
)
from rewake.node.micro_batches.next_batch import BatchIdentity
from rewake.node.micro_batches.shard_batches import BatchRecord, Decision, ShardBatches
from rewake.node.micro_batches.shard_chain import Past
from rewake.operators.row_digest import RowDigest

MINE, OTHER = bytes(range(16)), bytes(16)


def batch(number: int, query: bytes = MINE, *, rows: int = 3, run: int = 1) -> BatchRecord:
    return BatchRecord(BatchIdentity(query, number), bytes([run] * 16), RowDigest(rows, rows, 0))


def test_the_first_batch_of_a_new_query_is_the_next_one() -> None:
    """An empty log takes batch 0 of any query."""
    assert ShardBatches("at", None).decide(batch(0)) is Decision.NEXT


def test_the_batch_after_the_last_is_the_next_one_and_the_last_is_a_repeat() -> None:
    """However often they are offered, until the next one is recorded."""
    batches = ShardBatches("at", batch(4))
    for _ in range(2):
        assert batches.decide(batch(5)) is Decision.NEXT
        assert batches.decide(batch(4)) is Decision.REPEAT
    batches.recorded(batch(5))
    assert batches.decide(batch(5)) is Decision.REPEAT


@pytest.mark.parametrize(
    ("last", "offered", "error", "words"),
    [
        (None, batch(3), CheckpointWithoutLog, "the log in at/shard-0000 is empty"),
        (batch(4), batch(5, OTHER), OtherQuery, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (batch(4), batch(4, OTHER), OtherQuery, "new `at`"),
        (batch(4), batch(3), CheckpointBehindLog, "has come to batch 4"),
        (batch(4), batch(6), LogBehindCheckpoint, "gaps='allow'"),
    ],
)
def test_log_and_checkpoint_that_do_not_belong_together_are_refused(
    last: BatchRecord | None, offered: BatchRecord, error: type[UsageError], words: str
) -> None:
    """The error says what happened, to which folder, and what to do; nothing changes."""
    batches = ShardBatches("at/shard-0000", last)
    with pytest.raises(error, match="at/shard-0000") as refusal:
        batches.decide(offered)
    assert words in str(refusal.value)
    assert batches.last == last


def test_gaps_may_be_allowed_but_nothing_else() -> None:
    """Batches of which Spark knew that they were empty may be missing; a lost log may not."""
    assert ShardBatches("at", batch(4), "allow").decide(batch(9)) is Decision.NEXT
    with pytest.raises(CheckpointBehindLog):
        ShardBatches("at", batch(4), "allow").decide(batch(3))
    with pytest.raises(CheckpointWithoutLog):
        ShardBatches("at", None, "allow").decide(batch(3))
    with pytest.raises(UsageError, match="gaps"):
        ShardBatches("at", None, "perhaps")


def test_other_rows_are_put_in_the_place_of_the_last_ones_by_another_run_alone() -> None:
    """Within a run a plan stays as it is: rows that differ are left to chance."""
    batches = ShardBatches("at", batch(4, rows=7))
    assert batches.decide(batch(4, rows=7, run=2)) is Decision.REPEAT
    for rows in (0, 6, 8):
        assert batches.decide(batch(4, rows=rows, run=2)) is Decision.REPLACE
        with pytest.raises(OtherRows, match=rf"{rows} in all, 7 before.*same rows each time"):
            batches.decide(batch(4, rows=rows))
    batches.recorded(batch(4, rows=8, run=2))
    assert batches.decide(batch(4, rows=8, run=3)) is Decision.REPEAT
    assert batches.decide(batch(5, run=2)) is Decision.NEXT
    with pytest.raises(CheckpointBehindLog):
        batches.decide(batch(3, rows=9, run=2))


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1))
def test_an_identity_is_read_as_it_was_written(query: bytes, number: int) -> None:
    """24 bytes: the query's id and the batch's number."""
    identity = BatchIdentity(query, number)
    assert len(identity.encode()) == 24
    assert BatchIdentity.decode(identity.encode()) == identity
    record = BatchRecord(identity, query[::-1], RowDigest(number, 1, 2**64 - 1))
    for past in (None, Past(number, query)):
        linked = record._replace(past=past)
        assert BatchRecord.decode(linked.encode()) == linked


@pytest.mark.parametrize("size", [0, 5, 24, 40, 63, 65, 87, 89])
def test_bytes_that_are_no_record_are_damage(size: int) -> None:
    """They come from a log."""
    with pytest.raises(DamagedFrame):
        BatchRecord.decode(bytes(size))
    if size != 24:
        with pytest.raises(DamagedFrame):
            BatchIdentity.decode(bytes(size))


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=40))
def test_every_batch_is_taken_once_and_in_order(offers: list[tuple[int, bool]]) -> None:
    """Whatever is offered, and whether or not its record became durable."""
    batches = ShardBatches("at", None)
    taken: list[int] = []
    for number, durable in offers:
        try:
            decision = batches.decide(batch(number))
        except UsageError:
            continue
        if decision is Decision.NEXT and durable:
            batches.recorded(batch(number))
            taken.append(number)
    assert taken == list(range(len(taken)))
