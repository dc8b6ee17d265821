"""What a commit into a stream consists of, and how it is written down.

    stage-<query>-<batch>-<partition>-<attempt>.arrow   rows that a task has staged
    commit-<epoch>.json                                 a manifest: what is being committed

Both are in the folder `staging` of the stream.  A staged file is an Arrow IPC stream; its record
batches are the parts, each the results of one frame of one shard.  The manifest gives every part's
place, so that committing copies bytes and understands none of them.

A frame of a commit has a BATCH section: the identity (16 bytes query id, u64 batch id), u32 part
and u32 parts, little-endian, and 16 bytes of chain (`shard_chain`), which all parts of a shard
share.  Parts are counted from 0 in each shard.  The last frame of a commit is in shard 0,
has no tuples, and its part is equal to its parts; its METADATA is `Concluded`: who has written the
stream, and where every shard ends.  What was written before there were chains has neither.

What always holds: a manifest, which is sealed (`log.files.sealed`), is read back as it was
written or refused as damaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Final, NamedTuple

from rewake.log.files.sealed import sealed, unsealed
from rewake.model.errors import (
    DamagedData,
    DamagedFrame,
    DamagedLog,
    OtherRows,
)
from rewake.node.micro_batches.next_batch import IDENTITY_BYTES, BatchIdentity, Place, is_next
from rewake.node.micro_batches.shard_chain import CHAIN_BYTES, ShardEnd, link
from rewake.operators.row_digest import NO_ROWS, RowDigest

__all__ = [
    "STAGING",
    "BatchPart",
    "Concluded",
    "Manifest",
    "Part",
    "StagedFile",
    "Writers",
    "Written",
    "manifest_epoch",
    "manifest_name",
    "rows_of",
    "staged_identity",
    "staged_name",
]

STAGING: Final = "staging"

_FORMAT: Final = 2
_PARTS: Final = Struct("<II")
_PLACE: Final = Struct("<IQQQ")
_STAGED: Final = re.compile(r"stage-([0-9a-f]{32})-(\d{1,19})-\d+-[0-9a-f]+\.arrow")
_MANIFEST: Final = re.compile(r"commit-(\d{1,19})\.json")
# How many earlier writers a stream remembers: each costs some bytes in every commit.
_REMEMBERED: Final = 64


class BatchPart(NamedTuple):
    """What the BATCH section of a frame says: which part of which batch it is."""

    identity: BatchIdentity
    part: int
    parts: int
    chain: bytes = b""

    def encode(self) -> bytes:
        """The section's payload."""
        return self.identity.encode() + _PARTS.pack(self.part, self.parts) + self.chain

    @classmethod
    def decode(cls, payload: memoryview | bytes) -> BatchPart:
        """What `encode` wrote; `DamagedFrame` otherwise."""
        content = bytes(payload)
        rest = len(content) - IDENTITY_BYTES - _PARTS.size
        if rest not in (0, CHAIN_BYTES):
            raise DamagedFrame(f"the section of a batch's part has {len(content)} bytes")
        identity = BatchIdentity.decode(content[:IDENTITY_BYTES])
        part, parts = _PARTS.unpack_from(content, IDENTITY_BYTES)
        return cls(identity, part, parts, content[len(content) - rest :])


# --- names ---------------------------------------------------------------------------------------


def staged_name(identity: BatchIdentity, partition: int, attempt: str) -> str:
    """The name of a staged file; `attempt` (hexadecimal) is another one in every attempt."""
    return f"stage-{identity.query.hex()}-{identity.batch}-{partition}-{attempt}.arrow"


def staged_identity(name: str) -> BatchIdentity | None:
    """Whose staged file it is; None when it is none."""
    found = _STAGED.fullmatch(name)
    return BatchIdentity(bytes.fromhex(found[1]), int(found[2])) if found else None


def manifest_name(epoch: int) -> str:
    """The name of the manifest that the writer of `epoch` publishes."""
    return f"commit-{epoch}.json"


def manifest_epoch(name: str) -> int | None:
    """The epoch of the writer of a manifest; None when the file is none."""
    found = _MANIFEST.fullmatch(name)
    return int(found[1]) if found else None


# --- staged rows ---------------------------------------------------------------------------------


class Part(NamedTuple):
    """One record batch in a staged file: its shard, its bytes, its rows and their latest time."""

    shard: int
    offset: int
    size: int
    rows: int
    time: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The rows that one attempt of one task has staged; `checksum` is the CRC-32C of the file."""

    name: str
    partition: int
    size: int
    checksum: int
    parts: tuple[Part, ...]
    digest: RowDigest

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return sum(part.rows for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "partition": self.partition,
            "size": self.size,
            "crc32c": self.checksum,
            "parts": [list(part) for part in self.parts],
            "digest": self.digest.encode().hex(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StagedFile:
        """What `to_json` gave."""
        parts = tuple(Part(*map(int, part)) for part in value["parts"])
        return cls(
            str(value["name"]),
            int(value["partition"]),
            int(value["size"]),
            int(value["crc32c"]),
            parts,
            RowDigest.decode(bytes.fromhex(value["digest"])),
        )


def rows_of(files: Iterable[StagedFile]) -> RowDigest:
    """Which rows a batch has, whichever tasks have staged them."""
    found = NO_ROWS
    for file in files:
        found = found.plus(file.digest)
    return found


# --- who has written -----------------------------------------------------------------------------


class Written(NamedTuple):
    """The last batch of a writer, and which rows it had."""

    batch: int
    rows: RowDigest


_NOTHING: Final = Written(-1, NO_ROWS)


@dataclass(frozen=True, slots=True)
class Writers:
    """Who has written the stream, and how far: the last batch of each writer by its id.

    `current` is the streaming query that the stream belongs to, if any; batch jobs come and go.
    """

    current: bytes | None = None
    last: Mapping[bytes, Written] = field(default_factory=dict)

    def has(self, identity: BatchIdentity) -> bool:
        """Whether the batch, or a later one of the same writer, is in the stream."""
        return identity.batch <= self.last.get(identity.query, _NOTHING).batch

    def check_repeat(self, identity: BatchIdentity, rows: RowDigest, path: str) -> None:
        """Refuse a batch that the stream has, unless it is the writer's last one as it was.

        What is in a stream stays: somebody may have read it.
        """
        last = self.last[identity.query]
        is_next(identity, BatchIdentity(identity.query, last.batch), _place(path))
        if rows != last.rows:
            raise _other_rows(identity, rows, last.rows, path)

    def check_next(
        self, identity: BatchIdentity, path: str, *, takeover: bool, allow_gaps: bool
    ) -> None:
        """Refuse a batch of a streaming query that does not follow what is in the stream."""
        if self.current is None:
            if not (takeover or allow_gaps):
                is_next(identity, None, _place(path))
        elif identity.query == self.current or not takeover:
            last = BatchIdentity(self.current, self.last[self.current].batch)
            is_next(identity, last, _place(path), gaps=allow_gaps)

    def after(
        self, identity: BatchIdentity, rows: RowDigest, *, streaming: bool, remember: bool
    ) -> Writers:
        """The same after a commit; batch jobs are remembered when they may be repeated."""
        if not remember and not streaming:
            return self
        current = identity.query if streaming else self.current
        last = {query: batch for query, batch in self.last.items() if query != identity.query}
        last[identity.query] = Written(identity.batch, rows)
        for query in list(last)[: max(0, len(last) - _REMEMBERED)]:
            if query != current:
                del last[query]
        return Writers(current, last)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; the order of the writers is kept."""
        return {
            "current": self.current.hex() if self.current else None,
            "last": [
                [query.hex(), written.batch, written.rows.encode().hex()]
                for query, written in self.last.items()
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Writers:
        """What `to_json` gave."""
        current = value["current"]
        last = {
            bytes.fromhex(query): Written(int(batch), RowDigest.decode(bytes.fromhex(rows)))
            for query, batch, rows in value["last"]
        }
        return cls(bytes.fromhex(current) if current else None, last)


@dataclass(frozen=True, slots=True)
class Concluded:
    """What the last commit says: who has written, and where each shard ends; `()` if unknown."""

    writers: Writers = field(default_factory=Writers)
    ends: tuple[ShardEnd, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return self.writers.to_json() | ({"shards": _ends_to_json(self.ends)} if self.ends else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Concluded:
        """What `to_json` gave."""
        return cls(Writers.from_json(value), _ends_from_json(value.get("shards", ())))


def _ends_to_json(ends: Iterable[ShardEnd]) -> list[Any]:
    return [[frames, (chain or b"").hex()] for frames, chain in ends]


def _ends_from_json(value: Iterable[Any]) -> tuple[ShardEnd, ...]:
    return tuple(ShardEnd(int(frames), bytes.fromhex(chain)) for frames, chain in value)


def _place(path: str) -> Place:
    return Place(
        f"the stream at {path}",
        without_log="Was the stream removed, or is the path another one? Give the path that "
        "belongs to the checkpointLocation; or start with a new checkpointLocation; or option "
        "gaps=allow goes on without the batches before",
        other_query="Was Spark's checkpoint lost or changed? Start the query with the "
        "checkpointLocation it had, or write to another path. Rows that are in the stream already "
        "would be there twice; if that is well, option takeover=true goes on as a new writer",
        checkpoint_behind="Nobody knows whether these are the rows that are in it already: restore "
        "the newest checkpoint; or option otherRows=keep leaves the stream as it is up to that "
        "batch",
        log_behind="Or did the query write elsewhere meanwhile? Restore the stream, or option "
        "gaps=allow goes on without them",
    )


def _other_rows(identity: BatchIdentity, rows: RowDigest, there: RowDigest, path: str) -> OtherRows:
    return OtherRows(
        f"batch {identity.batch} of {identity.query_text} is in the stream at {path} with other "
        f"rows: {there.rows} are there, {rows.rows} were to be written. Has Spark planned the "
        "batch anew after its checkpoint was damaged, or does the query give other rows each time? "
        "What is in a stream stays: write to a new path with a new checkpointLocation; or option "
        "otherRows=keep goes on with the rows that are there, without those of this time"
    )


# --- manifests -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """A commit that will be completed, whoever completes it.

    `bases` has for each shard the sequence of the commit's first frame there.  `writers` and `ends`
    are what the last frame will say; `linked` knows the ends.
    """

    epoch: int
    identity: BatchIdentity
    writers: Writers
    bases: tuple[int, ...]
    files: tuple[StagedFile, ...]
    ends: tuple[ShardEnd, ...] = ()

    def linked(self, chains: Iterable[bytes]) -> Manifest:
        """The same with ends, when these are the chains of the shards before.

        What a chain takes up of a batch are its rows as a whole and the bytes that go to the shard.
        """
        batch = self.identity.encode() + rows_of(self.files).encode()
        ends = []
        for shard, (chain, parts) in enumerate(zip(chains, self.parts_by_shard(), strict=True)):
            frames = len(parts) + (shard == 0)
            places = (
                _PLACE.pack(file.checksum, part.offset, part.size, part.rows)
                for file, part in parts
            )
            after = link(chain, batch + b"".join(places)) if frames else chain
            ends.append(ShardEnd(self.bases[shard] + frames, after))
        return replace(self, ends=tuple(ends))

    def mark(self, shard: int, part: int) -> BatchPart:
        """What a frame of the commit says of itself."""
        chain = self.ends[shard].chain if self.ends else None
        return BatchPart(self.identity, part, len(self.parts_by_shard()[shard]), chain or b"")

    def parts_by_shard(self) -> list[list[tuple[StagedFile, Part]]]:
        """The parts of each shard in their order: that of the files, then that in the file."""
        shards: list[list[tuple[StagedFile, Part]]] = [[] for _ in self.bases]
        for file in self.files:
            for part in file.parts:
                shards[part.shard].append((file, part))
        return shards

    def encode(self) -> bytes:
        """The content of its file."""
        body = {
            "epoch": self.epoch,
            "query": self.identity.query.hex(),
            "batch": self.identity.batch,
            "writers": self.writers.to_json(),
            "bases": list(self.bases),
            "files": [file.to_json() for file in self.files],
            "ends": _ends_to_json(self.ends),
        }
        return sealed({"format": _FORMAT, **body}, compact=True)

    @classmethod
    def decode(cls, data: bytes, name: str) -> Manifest:
        """What `encode` wrote; `DamagedLog` otherwise."""
        try:
            body = unsealed(data, name, "restore it")
            if body["format"] != _FORMAT:
                raise ValueError("it is of another version")
            return cls(
                int(body["epoch"]),
                BatchIdentity(bytes.fromhex(body["query"]), int(body["batch"])),
                Writers.from_json(body["writers"]),
                tuple(int(base) for base in body["bases"]),
                tuple(StagedFile.from_json(file) for file in body["files"]),
                _ends_from_json(body["ends"]),
            )
        except (DamagedData, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedLog(
                f"the manifest {name} of a commit is not readable ({error}): the batch it belongs "
                "to may be half in the stream; restore the file from a copy"
            ) from error
