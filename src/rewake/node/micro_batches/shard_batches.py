"""Which of Spark's micro-batches a shard takes, repeats or refuses: exactly once, per shard.

Every shard records every batch, also one without rows for it, so its newest frame names the batch
before the next (`next_batch`).  Spark repeats a batch whenever it is not sure (a task is tried
again or twice at once, the driver was restarted) and always with the same identity; so the log
alone decides:

    the next batch                          process it, and record it
    the batch of the record, same rows      the same results again, and nothing changes
    that batch, planned anew by a new run   process it from the state before, in the old one's place
    anything else                           log and checkpoint do not belong together: refused

Which rows a batch has, all shards' together, is said by their number and digest.  They differ when
Spark has lost its plan of a batch, which it does not sync, and has made another one.  In one run of
a query a plan stays as it is; if rows differ there, they are left to chance.

A record also says what came before its batch (`shard_chain`), the same in all shards of
one history: so a shard's folder that was put back alone, with other rows in its past, is found out.

What always holds: deciding changes nothing; the last batch changes only by `recorded`, which is for
a batch that `decide` has called the next one or one to replace.  The host asks under the shard's
lock, appends the record, and calls `recorded` when it is durable.

The design is argued in docs/design/shards-of-micro-batches.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from rewake.model.errors import DamagedFrame, OtherRows, UsageError
from rewake.node.micro_batches.next_batch import IDENTITY_BYTES, BatchIdentity, Place, is_next
from rewake.node.micro_batches.shard_chain import Past
from rewake.operators.row_digest import DIGEST_BYTES, RowDigest

__all__ = ["GAPS", "BatchRecord", "Decision", "ShardBatches"]

_RUN: Final = slice(IDENTITY_BYTES, IDENTITY_BYTES + 16)
_ROWS: Final = slice(_RUN.stop, _RUN.stop + DIGEST_BYTES)
# What to do about batches that were never offered: see `ShardBatches`.
GAPS: Final = ("refuse", "allow")


class BatchRecord(NamedTuple):
    """What a shard's record says of a batch: which it is, by which run of the query, which rows.

    `past` is what came before; None where it was written before there were chains.
    """

    identity: BatchIdentity
    run: bytes
    rows: RowDigest
    past: Past | None = None

    @property
    def batch(self) -> int:
        """The batch's number."""
        return self.identity.batch

    def past_of(self, batch: int) -> Past | None:
        """What came before a batch, this one or the next; None when the record does not know."""
        if self.past is None or batch not in (self.batch, self.batch + 1):
            return None
        if batch == self.batch:
            return self.past
        return self.past.then(self.identity.encode() + self.rows.encode())

    def encode(self) -> bytes:
        """The BATCH section of a frame: identity, 16 bytes of run, rows, and what came before."""
        past = b"" if self.past is None else self.past.encode()
        return self.identity.encode() + self.run + self.rows.encode() + past

    @classmethod
    def decode(cls, section: bytes) -> BatchRecord:
        """What `encode` wrote; `DamagedFrame` otherwise."""
        if len(section) < _RUN.stop:
            raise DamagedFrame(f"the record of a batch has {len(section)} bytes")
        identity = BatchIdentity.decode(section[: _RUN.start])
        rows, past = RowDigest.decode(section[_ROWS]), section[_ROWS.stop :]
        return cls(identity, section[_RUN], rows, Past.decode(past) if past else None)


class Decision(Enum):
    """What becomes of a batch."""

    NEXT = "next"
    REPEAT = "repeat"
    REPLACE = "replace"


class ShardBatches:
    """The batches of one shard, whose log is in `folder`; `last` is the record of its newest frame.

    With `gaps="allow"`, batches may have been left out: Spark may start no task for a batch that it
    knows to be empty.
    """

    def __init__(self, folder: str, last: BatchRecord | None, gaps: str = "refuse") -> None:
        if gaps not in GAPS:
            raise UsageError(f"gaps is 'refuse' or 'allow', not {gaps!r}")
        self._folder = folder
        self._gaps = gaps
        self.last = last

    def decide(self, request: BatchRecord) -> Decision:
        """The next batch, a repeat of the last, or to be put in its place; raises for any other."""
        last, place, gaps = self.last, self._place(), self._gaps == "allow"
        known = None if last is None else last.identity
        if is_next(request.identity, known, place, gaps=gaps):
            return Decision.NEXT
        assert last is not None, "nothing is repeated before the first batch"
        if request.rows == last.rows:
            return Decision.REPEAT
        if request.run == last.run:
            raise self._left_to_chance(request, last)
        return Decision.REPLACE

    def linked(self, request: BatchRecord) -> BatchRecord:
        """The record of a batch that is the next one, or in the last one's place, with its past.

        Where the log does not know the batch before, the chain begins with this one.
        """
        known = None if self.last is None else self.last.past_of(request.batch)
        return request._replace(past=known or Past(request.batch))

    def recorded(self, request: BatchRecord) -> None:
        """The record of the next batch, or of one in the last one's place, is durable."""
        assert self.last is None or self.last.batch <= request.batch, (
            "a record of a batch long past"
        )
        self.last = request

    # --- refusals ----------------------------------------------------------------------------

    def _place(self) -> Place:
        return Place(
            f"the log in {self._folder}",
            without_log="Give the `at` that belongs to this checkpointLocation, or start over with "
            "a new `at` and a new checkpointLocation",
            other_query="Two queries cannot share an `at`, and a new checkpointLocation makes a "
            "new query: give the checkpointLocation that belongs to this `at`, or a new `at`",
            checkpoint_behind="Restore the copy of `at` that was made with it, or the newest "
            "checkpoint, or start over with a new `at` and a new checkpointLocation",
            log_behind="Restore the newest copy of `at`; or, if Spark had nothing for this "
            "operator in those batches, say gaps='allow'",
        )

    def _left_to_chance(self, request: BatchRecord, last: BatchRecord) -> OtherRows:
        return OtherRows(
            f"batch {request.batch} was given to the log in {self._folder} twice in one run of the "
            f"query, with other rows ({request.rows.rows} in all, {last.rows.rows} before): "
            "what comes before the operator does not give the same rows each time it is computed "
            "(a random function, a source that changes). Make it do so; a new start of the query "
            "computes the batch anew, unless it sets job groups of its own, which hide its runs"
        )

    def superseded(self, request: BatchRecord) -> OtherRows:
        """The refusal of a run that another one has followed: its plans are over."""
        return OtherRows(
            f"batch {request.batch} was given to the log in {self._folder} with other rows, by a "
            "run of the query that another run has followed; nothing was changed. If two drivers "
            "run on one checkpointLocation, stop one"
        )

    def without_state_before(self, request: BatchRecord) -> OtherRows:
        """The refusal of other rows where the log does not have the state before the batch."""
        return OtherRows(
            f"batch {request.batch} was given to the log in {self._folder} again with other rows "
            f"({request.rows.rows} in all), and the log, which begins with this batch, does not "
            "have the state before it. If the folder was divided with `rewake migrate`, go on with "
            "the old one until Spark has finished the batch, and migrate again; or restore the "
            "copies of checkpoint and `at` that belong together"
        )
