"""A small vocabulary for tests of graphs: a source, a sink, approaches, a schema."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from rewake.graph import Query, Stream
from rewake.recovery.approach import Approach, Keeper, Kept

ITEMS = pa.schema(
    [("item_id", pa.int32()), ("item_price", pa.int32()), ("item_time", pa.timestamp("ms"))]
)


@dataclass(frozen=True)
class Numbers:
    """A source that is only talked about."""

    schema: pa.Schema = ITEMS
    seed: int = 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "numbers", "seed": self.seed}

    def open(self, shard: int, shards: int) -> Any:  # noqa: ARG002
        raise AssertionError("planning opens nothing")


@dataclass(frozen=True)
class Folder:
    """A sink that is only talked about."""

    path: str = "out"

    def describe(self) -> dict[str, Any]:
        return {"kind": "folder", "path": self.path}

    def open(self, shard: int, shards: int, schema: pa.Schema) -> Any:  # noqa: ARG002
        raise AssertionError("planning opens nothing")


@dataclass(frozen=True)
class Straight(Approach):
    """An approach with a standby, which cannot have cycles."""

    name: ClassVar[str] = "straight"
    keeper: ClassVar[Keeper] = Keeper.STANDBY
    retains: ClassVar[Kept] = Kept.IN_QUEUE
    places: ClassVar[int] = 2
    effort: int = 1

    def build(self, operator: Any, emit: Any, frames: Iterable[Any]) -> Any:  # noqa: ARG002
        raise AssertionError("planning builds nothing")


def items_of(query: Query, **options: Any) -> Stream:
    """A source of items named `items`."""
    return query.source("items", Numbers(), **options)
