"""Every error Rewake raises, sorted by whose fault it is.

An error says what happened, to what, and what to do.  There are three families:

- `UsageError`: the caller asked for something that cannot be; nothing was changed.
- `DamagedData`: bytes on disk or on the wire are not what was written; nothing was skipped.
- `OperatingFault`: the world around the program failed (disk full, fenced by a successor).

A broken invariant inside Rewake is none of these: it is an `AssertionError`.
"""

from __future__ import annotations

import math


class RewakeError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""


# --- the caller's mistakes -------------------------------------------------------------------


class UsageError(RewakeError):
    """The request cannot be carried out as stated; nothing was changed."""


class InvalidName(UsageError):
    """A name could leave its folder or confuse a reader."""


class InvalidWindow(UsageError):
    """A window specification that no stream can satisfy."""


class SchemaMismatch(UsageError):
    """A stream event, a key or an aggregate does not fit the schema it is used with."""


class NullKey(UsageError):
    """A null key arrived where null keys are refused."""


class NotALog(UsageError):
    """The path holds no log."""


class LogExists(UsageError):
    """A log is already there and must not be overwritten."""


class LogInUse(UsageError):
    """Another writer holds the log."""


class UnsupportedVersion(UsageError):
    """The log was written by a version of the format that this program does not read."""


class OutOfRange(UsageError):
    """The requested position, timestamp or sequence is not in the log (any more)."""


class TakenBack(OutOfRange):
    """The log has gone back: what was read of it, or asked for, is not part of it any more."""


class OtherQuery(UsageError):
    """The folder holds the state of another streaming query, or of the same one started anew."""


class OtherOperator(UsageError):
    """The folder holds the state of another operator, or of one with other settings."""


class OtherShard(UsageError):
    """A shard's folder holds the log of another shard, or one that belongs to another folder."""


class OtherRows(UsageError):
    """A batch is offered again with other rows, and what is recorded of it cannot be replaced."""


class CheckpointWithoutLog(UsageError):
    """Spark's checkpoint goes on where a log ended that is not there."""


class CheckpointBehindLog(UsageError):
    """Spark's checkpoint is older than the log: it asks for a batch long past."""


class LogBehindCheckpoint(UsageError):
    """The log is older than Spark's checkpoint: batches between them are missing."""


# --- damaged data ----------------------------------------------------------------------------


class DamagedData(RewakeError):
    """Stored bytes are not what was written.  They are refused, never skipped."""


class DamagedLog(DamagedData):
    """A log is damaged below its durable mark.

    Carries where: `segment` (file name), `offset` (bytes from its start), and `sequence`, the
    first frame that cannot be trusted, when it is known.
    """

    def __init__(
        self, message: str, *, segment: str = "", offset: int = -1, sequence: int = -1
    ) -> None:
        super().__init__(message)
        self.segment = segment
        self.offset = offset
        self.sequence = sequence


class DamagedFrame(DamagedData):
    """Bytes that should be a frame or one of its sections are not one."""


class HistoryMismatch(DamagedData):
    """Parts of a query (its logs, its sinks, the coordinator's state) are not of one history."""


class ReplayMismatch(DamagedData):
    """Input that was replayed is not the input from which the log was written."""


# --- operating faults ------------------------------------------------------------------------


class OperatingFault(RewakeError):
    """The surroundings failed; what was acknowledged is safe."""


class StorageFault(OperatingFault):
    """A store could not carry out an operation."""


class StorageFull(StorageFault):
    """There is no room.  Nothing appended is lost; appending goes on when there is room."""


class WriterFailed(StorageFault):
    """The writer has stopped for good (a failed write or sync); reopen the log to go on."""


class Fenced(OperatingFault):
    """A successor with a higher epoch owns the log; this writer's bytes are refused."""


class ProducerSuperseded(OperatingFault):
    """A later producer writes under the same name; what this one did not hear of is not its own."""


class NotOwner(OperatingFault):
    """The process that was asked does not own the shard (any more); ask its owner."""


class ArithmeticOverflow(OperatingFault):
    """A sum or average left the range of its type; the turn that caused it was not recorded."""


class LoopGrows(OperatingFault):
    """More and more tuples go around in a loop of a query."""


class GaveUp(OperatingFault):
    """A system outside did not come back in the time it was given; a restart would wait again."""


class Unavailable(OperatingFault):
    """A system outside does not answer for now.  Nothing is lost; ask again after a while.

    Whoever has asked in vain for `patience_seconds`, each time anew, raises `gave_up` instead.
    """

    def __init__(
        self, text: str, patience_seconds: float = math.inf, gave_up: GaveUp | None = None
    ) -> None:
        super().__init__(text)
        self.patience_seconds = patience_seconds
        self.gave_up = gave_up


class BadPeer(OperatingFault):
    """The other end of a connection sent what no honest peer would send; it was cut off."""


class NotAllowed(BadPeer):
    """A peer said what its token does not allow, such as a client that registers as a node."""


class QueryFailed(RewakeError):
    """A node reported an error that a restart would not cure."""


class MisfitQuery(QueryFailed, HistoryMismatch):
    """Its logs, its sinks and the coordinator's state are not of one history; nothing was lost."""
