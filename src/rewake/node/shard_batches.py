"""Which of Spark's micro-batches a shard takes, repeats or refuses: exactly once, per shard.

A micro-batch has an identity: the id of the streaming query (which its checkpoint keeps) and a
number that rises by one.  The newest frame of a shard's log names the batch that it is the record
of.  Spark repeats a batch whenever it is not sure (a task is tried again or twice at once, the
driver was restarted) and always with the same identity; so the log alone decides:

    the next batch           process it, and record it
    the batch of the record  the same results again, and nothing changes
    anything else            log and checkpoint do not belong together: refused, with the way out

A batch without rows for a shard leaves no record there, because its task cannot tell which shard it
is for; it leaves a note in the operator's folder instead.  `noted` is the highest batch with such a
note.  A shard that was left out of some batches was so in the one before the next it is offered, so
that one has a note, unless the folder is older than Spark's checkpoint.

What always holds: deciding changes nothing; the last batch changes only by `recorded`, which is for
a batch that `decide` has called the next one.  The host asks under the shard's lock, appends the
record, and calls `recorded` when it is durable.

The design is argued in docs/design/shards-of-micro-batches.md.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from rewake.model.errors import (
    CheckpointBehindLog,
    CheckpointWithoutLog,
    DamagedFrame,
    LogBehindCheckpoint,
    OtherQuery,
    UsageError,
)

__all__ = ["GAPS", "BatchIdentity", "Decision", "ShardBatches"]

_IDENTITY: Final = Struct("<16sQ")
# What to do about batches that were never offered: see `ShardBatches`.
GAPS: Final = ("refuse", "allow")


class BatchIdentity(NamedTuple):
    """A micro-batch of a streaming query; `query` is 16 bytes."""

    query: bytes
    batch: int

    def encode(self) -> bytes:
        """The BATCH section of a frame: query id, then the batch's number."""
        return _IDENTITY.pack(self.query, self.batch)

    @classmethod
    def decode(cls, section: bytes) -> BatchIdentity:
        """What `encode` wrote; `DamagedFrame` otherwise."""
        if len(section) != _IDENTITY.size:
            raise DamagedFrame(f"a batch's identity has {len(section)} bytes")
        return cls(*_IDENTITY.unpack(section))

    @property
    def query_text(self) -> str:
        """The query's id as Spark shows it."""
        digits = self.query.hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))


class Decision(Enum):
    """What becomes of a batch."""

    NEXT = "next"
    REPEAT = "repeat"


class ShardBatches:
    """The batches of one shard, whose log is in `folder`; `last` is that of its newest frame.

    With `gaps="allow"`, batches may have been left out without a note: Spark starts no task for a
    batch of which it knows that it is empty.
    """

    def __init__(self, folder: str, last: BatchIdentity | None, gaps: str = "refuse") -> None:
        if gaps not in GAPS:
            raise UsageError(f"gaps is 'refuse' or 'allow', not {gaps!r}")
        self._folder = folder
        self._gaps = gaps
        self.last = last

    def decide(self, request: BatchIdentity, noted: BatchIdentity | None = None) -> Decision:
        """The next batch, or a repeat of the last; raises for any other."""
        explained = noted is not None and noted.batch >= request.batch - 1
        if noted is not None and noted.query != request.query:
            raise self._other_query(request, noted)
        if self.last is None:
            if request.batch > 0 and not explained:
                raise self._without_log(request)
            return Decision.NEXT
        if request.query != self.last.query:
            raise self._other_query(request, self.last)
        if request.batch == self.last.batch:
            return Decision.REPEAT
        if request.batch < self.last.batch:
            raise self._checkpoint_behind(request, self.last)
        gap = request.batch > self.last.batch + 1
        if gap and not explained and self._gaps != "allow":
            raise self._log_behind(request, self.last)
        return Decision.NEXT

    def recorded(self, request: BatchIdentity) -> None:
        """The record of the next batch is durable."""
        assert self.last is None or self.last.batch < request.batch, "only the next leaves a record"
        self.last = request

    # --- refusals ----------------------------------------------------------------------------

    def _without_log(self, request: BatchIdentity) -> CheckpointWithoutLog:
        return CheckpointWithoutLog(
            f"the query's checkpoint goes on with batch {request.batch}, but the log in "
            f"{self._folder} is empty: the state of the batches before is not there. Give the `at` "
            "that belongs to this checkpointLocation, or start over with a new `at` and a new "
            "checkpointLocation"
        )

    def _other_query(self, request: BatchIdentity, last: BatchIdentity) -> OtherQuery:
        return OtherQuery(
            f"the log in {self._folder} belongs to the streaming query {last.query_text} (its last "
            f"batch is {last.batch}), but batch {request.batch} of query {request.query_text} was "
            "given to it. Two queries cannot share an `at`, and a new checkpointLocation makes a "
            "new query: give the checkpointLocation that belongs to this `at`, or a new `at`"
        )

    def _checkpoint_behind(
        self, request: BatchIdentity, last: BatchIdentity
    ) -> CheckpointBehindLog:
        return CheckpointBehindLog(
            f"the query's checkpoint asks for batch {request.batch}, but the log in {self._folder} "
            f"has come to batch {last.batch}: the checkpoint is older than the log (restored from "
            "a copy?). Restore the copy of `at` that was made with it, or the newest checkpoint, "
            "or start over with a new `at` and a new checkpointLocation"
        )

    def _log_behind(self, request: BatchIdentity, last: BatchIdentity) -> LogBehindCheckpoint:
        return LogBehindCheckpoint(
            f"the query's checkpoint goes on with batch {request.batch}, but the log in "
            f"{self._folder} ends with batch {last.batch}: the log is older than the checkpoint "
            "(restored from a copy?), and what came between would be lost. Restore the newest copy "
            "of `at`; or, if Spark had nothing for this operator in those batches, say "
            "gaps='allow'"
        )
