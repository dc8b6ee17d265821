"""What a `WritePipeline` asks its host to do.  `done` (or `failed`) answers each one."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from rewake.log.frame import Buffer

__all__ = [
    "Command",
    "Complete",
    "Confirm",
    "Gather",
    "Rotate",
    "Sync",
    "Write",
    "WriteIndex",
    "WriteMark",
]


class Write(NamedTuple):
    """Write the buffers at `offset`; may be repeated after a failure."""

    stripe: int
    segment: str
    offset: int
    buffers: Sequence[Buffer]


class WriteIndex(NamedTuple):
    """Write one entry of a sparse index.  A failure costs readers time, nothing else."""

    stripe: int
    name: str
    offset: int
    entry: bytes


class Sync(NamedTuple):
    """Make what was written to the segment durable.  A failure is for good."""

    stripe: int
    segment: str


class Rotate(NamedTuple):
    """Publish a new segment and its empty index; may be repeated after a failure."""

    stripe: int
    segment: str
    index_name: str
    header: bytes


class Confirm(NamedTuple):
    """Look whether this writer still owns the log: answer `done`, or `fenced`.

    It must be looked at now, after the writes and syncs that led here, not remembered.
    """

    through: int


class WriteMark(NamedTuple):
    """Write a mark; with `sync`, make it durable before going on.

    `order` rises from mark to mark: a host with several threads leaves out an unsynced one that
    comes after a later one, so that what readers see never goes back.
    """

    offset: int
    mark: bytes
    sync: bool
    order: int = 0


class Gather(NamedTuple):
    """Wait so long, or until the pipeline has `gathered` enough, before the stripe's next batch.

    For the first `least` seconds of it, only until the pipeline is `pressed`.
    """

    stripe: int
    seconds: float
    least: float = 0.0


class Complete(NamedTuple):
    """Tell the world: every frame with a sequence below `through` is complete."""

    through: int


Command: TypeAlias = Write | WriteIndex | Sync | Rotate | Confirm | WriteMark | Gather | Complete
