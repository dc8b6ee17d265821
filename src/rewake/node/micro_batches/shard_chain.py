"""Whether shards are of one history: a running digest of what came before, and its comparison.

A shard's folder can be put back alone, from another time or from a copy that went on by itself.
It is a good log, so nothing in it tells.  The other shards do: what is recorded of a batch holds a
*chain*, a digest of the batch and of the chain before it.  Two histories that differ anywhere have
different chains from there on.

Two rules follow, for two ways of writing shards:

- Who appends to some shards and then concludes in one (`rewake.connectors.streams.commit`) says in
  the conclusion where every shard ends.  A shard is there, or within the commit under way: `fits`.
- Where every shard records every batch by itself (`shard_batches`), a record says what
  was before its batch.  All shards must have had the same before the batch under way: `strangers`.

What always holds: shards of one history are never told apart, wherever each of them was stopped in
the one batch under way; what was written before there were chains is never refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from rewake.model.errors import DamagedFrame

__all__ = ["CHAIN_BYTES", "NO_CHAIN", "Past", "ShardEnd", "fits", "link", "strangers"]

CHAIN_BYTES: Final = 16
NO_CHAIN: Final = bytes(CHAIN_BYTES)
_SINCE: Final = Struct("<Q")


def link(chain: bytes, content: bytes) -> bytes:
    """The chain after `content`."""
    return blake2b(chain + content, digest_size=CHAIN_BYTES).digest()


# --- shards whose ends one of them knows ---------------------------------------------------------


class ShardEnd(NamedTuple):
    """How many frames a shard has had, and their chain; None when the last has been trimmed."""

    frames: int
    chain: bytes | None


def fits(found: ShardEnd, said: ShardEnd, coming: ShardEnd | None = None) -> bool:
    """Whether a shard ends where it is said to, or on the way from there to what is coming."""
    if found.frames == said.frames:
        return found.chain in (None, said.chain)
    if coming is None:
        return False
    return said.frames < found.frames <= coming.frames and found.chain in (None, coming.chain)


# --- shards that record every batch --------------------------------------------------------------


class Past(NamedTuple):
    """What came before a batch: the chain of all batches from `since` on."""

    since: int
    chain: bytes = NO_CHAIN

    def then(self, content: bytes) -> Past:
        """What came before the next batch, if this was the content of the batch."""
        return Past(self.since, link(self.chain, content))

    def encode(self) -> bytes:
        """24 bytes."""
        return _SINCE.pack(self.since) + self.chain

    @classmethod
    def decode(cls, data: bytes) -> Past:
        """What `encode` wrote; `DamagedFrame` otherwise."""
        if len(data) != _SINCE.size + CHAIN_BYTES:
            raise DamagedFrame(f"what came before a batch has {len(data)} bytes")
        (since,) = _SINCE.unpack_from(data)
        return cls(since, data[_SINCE.size :])


def strangers(pasts: Mapping[int, Past]) -> list[int]:
    """The shards whose past is not that of most; chains that began elsewhere cannot be compared.

    Of two histories with as many shards each, that of the lowest shard is taken for the right one.
    """
    found: list[int] = []
    for since in {past.since for past in pasts.values()}:
        alike = {shard: past for shard, past in sorted(pasts.items()) if past.since == since}
        ((most, _),) = Counter(alike.values()).most_common(1)
        found += [shard for shard, past in alike.items() if past != most]
    return sorted(found)
