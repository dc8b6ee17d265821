"""Whether a micro-batch is Spark's next, for everything that records Spark's batches.

A micro-batch has an identity: the id of the streaming query (which its checkpoint keeps) and a
number that rises by one.  Who records batches names the last one; by that alone an offered batch is

    the first of all, or the one behind the last      the next one
    the last one itself                               a repetition
    anything else                                     of a log and a checkpoint that do not belong
                                                      together: refused

What always holds: looking changes nothing; what a refusal advises is said by the place that
refuses, what has happened is said here.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from rewake.model.errors import (
    CheckpointBehindLog,
    CheckpointWithoutLog,
    DamagedFrame,
    LogBehindCheckpoint,
    OtherQuery,
)

__all__ = ["IDENTITY_BYTES", "BatchIdentity", "Place", "is_next"]

_IDENTITY: Final = Struct("<16sQ")
IDENTITY_BYTES: Final = _IDENTITY.size


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

    def __str__(self) -> str:
        return f"batch {self.batch} of query {self.query_text}"


class Place(NamedTuple):
    """Where batches are recorded, in words, and what to do when one does not fit there."""

    name: str
    without_log: str
    other_query: str
    checkpoint_behind: str
    log_behind: str


def is_next(
    offered: BatchIdentity, last: BatchIdentity | None, place: Place, *, gaps: bool = False
) -> bool:
    """Whether a batch is the next one; False: it is the last one again.  Raises for any other.

    With `gaps`, batches may have been left out behind the last one.
    """
    if last is None:
        if offered.batch == 0:
            return True
        raise CheckpointWithoutLog(
            f"Spark's checkpoint goes on with {offered}, but {place.name} is empty: what came "
            f"before is not there. {place.without_log}"
        )
    if offered.query != last.query:
        raise OtherQuery(
            f"{place.name} is that of the streaming query {last.query_text} (its last batch is "
            f"{last.batch}), but {offered} was given to it. {place.other_query}"
        )
    if offered.batch < last.batch:
        raise CheckpointBehindLog(
            f"{offered} was given to {place.name}, which has come to batch {last.batch} of it: "
            f"Spark's checkpoint is older (restored from a copy?). {place.checkpoint_behind}"
        )
    if offered.batch > last.batch + 1 and not gaps:
        raise LogBehindCheckpoint(
            f"{offered} was given to {place.name}, whose last batch is {last.batch}: those between "
            f"are missing there (restored from a copy?). {place.log_behind}"
        )
    return offered.batch > last.batch
