"""Stretches of the NEXMark stream: of persons, auctions, bids, or of all events as they come.

The stream of all events has the columns of all three kinds, each null where the kind has none, and
`kind`: 0 for a person, 1 for an auction, 2 for a bid.  Persons and auctions share `id`.

Event times are in milliseconds; at 10,000 events per second ten events share one.  A watermark is
exact: the least event time that any later tuple can have, so no tuple is ever late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rewake.model.errors import SchemaMismatch, UsageError
from rewake_lab.nexmark.events.columns import TIME, Auctions, Bids, Persons, Tuples
from rewake_lab.nexmark.events.numbers import (
    KINDS,
    SHUFFLE_FACTOR,
    Int64s,
    Located,
    kind_of,
    located,
    number_at,
    tuples_before,
)

__all__ = ["MOST_TUPLES", "SCHEMAS", "NexmarkStream", "check_kind", "schema_of"]

# In one batch: the texts of more auctions than this may exceed what a string column can hold.
MOST_TUPLES: Final = 1 << 20
_PIECE: Final = 1 << 16
_MOST_IN_GROUP: Final = 1 << 20
_MOST_PER_SECOND: Final = 10**9
# 2015-07-15 00:00 UTC, where Beam's generator begins; a multiple of every window in use.
_FIRST_MS: Final = 1_436_918_400_000

_TYPES: Final = {
    "kind": pa.int8(),
    "time": TIME,
    "expires": TIME,
    "emitted": TIME,
    **{
        name: pa.string()
        for name in ("name", "email", "card", "city", "state", "item", "description", "extra")
    },
}


def _schema(*names: str) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES.get(name, pa.int64())) for name in names])


SCHEMAS: Final = {
    "persons": _schema("id", "name", "email", "card", "city", "state", "time", "extra"),
    "auctions": _schema(
        "id", "item", "description", "initialBid", "reserve", "time", "expires", "seller",
        "category", "extra",
    ),
    "bids": _schema("auction", "bidder", "price", "time", "extra"),
    "events": _schema(
        "kind", "time", "id", "name", "email", "card", "city", "state", "item", "description",
        "initialBid", "reserve", "expires", "seller", "category", "auction", "bidder", "price",
        "extra",
    ),
}  # fmt: skip
_EMITTED: Final = pa.field("emitted", TIME)
_CLASSES: Final[dict[str, type[Tuples]]] = {"persons": Persons, "auctions": Auctions, "bids": Bids}


@dataclass(frozen=True, slots=True)
class NexmarkStream:
    """NEXMark's events; all of them a function of these settings.

    `out_of_order`: events are shuffled within groups of so many.  `hot_...`: of so many choices all
    but one are of the hot auction, seller or bidder.
    """

    seed: int
    events_per_second: int = 10_000
    out_of_order: int = 1
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4

    def __post_init__(self) -> None:
        _check("events_per_second", self.events_per_second, _MOST_PER_SECOND)
        _check("out_of_order", self.out_of_order, _MOST_IN_GROUP)
        for name in ("hot_auctions", "hot_sellers", "hot_bidders"):
            _check(name, getattr(self, name), 2**31)
        if self.out_of_order % SHUFFLE_FACTOR == 0:
            raise UsageError(
                f"out_of_order is {self.out_of_order}; a multiple of {SHUFFLE_FACTOR} would repeat "
                "events and leave others out; choose another size of groups"
            )

    def batch(
        self, kind: str, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """The tuples of a kind at positions `start` to `stop - 1`; all columns, or these."""
        schema = schema_of(kind, columns)
        if not 0 <= stop - start <= MOST_TUPLES:
            raise UsageError(f"{stop - start} tuples in one batch; ask for 0 to {MOST_TUPLES}")
        events = located(kind, start, stop, self.out_of_order)
        if kind == "events":
            arrays = self._of_all_kinds(events, schema)
        else:
            tuples = _CLASSES[kind](self, events)
            arrays = [tuples.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def table(self, kind: str, events: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All tuples of a kind among the first so many events."""
        end = self.tuples(kind, events)
        batches = [
            self.batch(kind, start, min(start + _PIECE, end), columns)
            for start in range(0, end, _PIECE)
        ]
        return pa.Table.from_batches(batches, schema_of(kind, columns))

    def tuples(self, kind: str, events: int) -> int:
        """How many of the first so many events are of a kind."""
        check_kind(kind)
        return tuples_before(kind, events, self.out_of_order)

    def times_ms(self, numbers: Int64s) -> Int64s:
        """The event times of the events with these numbers, in milliseconds since 1970."""
        return _FIRST_MS + numbers * 1000 // self.events_per_second

    @property
    def disorder_ms(self) -> int:
        """By so much at most an event time is below one that came before: the slack to allow."""
        return -(-(self.out_of_order - 1) * 1000 // self.events_per_second)

    def watermark(self, kind: str, position: int) -> int:
        """No tuple of this kind from this position on has an event time below this."""
        number = number_at(kind, position) // self.out_of_order * self.out_of_order
        return int(self.times_ms(np.int64(number)))  # type: ignore[arg-type]

    def _of_all_kinds(self, events: Located, schema: pa.Schema) -> list[pa.Array]:
        kinds = kind_of(events.numbers)
        mine = [np.flatnonzero(kinds == value) for value in range(len(_CLASSES))]
        tuples = {
            kind: made(self, Located(events.numbers[rows], events.places[rows]))
            for (kind, made), rows in zip(_CLASSES.items(), mine, strict=True)
        }
        return [
            pa.array(kinds) if field.name == "kind" else _spread(field, tuples, mine, kinds.size)
            for field in schema
        ]


def _spread(
    field: pa.Field, tuples: dict[str, Tuples], rows: list[NDArray[np.intp]], size: int
) -> pa.Array:
    """A column for all events: each kind's values in its rows, null in those of the others."""
    source = np.full(size, -1, np.int64)
    parts, before = [], 0
    for (kind, made), mine in zip(tuples.items(), rows, strict=True):
        if field.name in schema_of(kind, None).names or field == _EMITTED:
            parts.append(made.column(field.name))
            source[mine] = np.arange(before, before + mine.size)
            before += mine.size
    return pa.concat_arrays(parts).take(pa.array(source, mask=source < 0))


def schema_of(kind: str, columns: Sequence[str] | None) -> pa.Schema:
    """The columns of a kind, or those of them that are asked for, and in that order.

    `emitted` can be asked for too: when the tuple comes by the generator's own clock.
    """
    check_kind(kind)
    schema: pa.Schema = SCHEMAS[kind]
    if columns is None:
        return schema
    known = schema.append(_EMITTED)
    missing = [name for name in columns if name not in known.names]
    if missing or not columns or len(set(columns)) < len(columns):
        raise SchemaMismatch(
            f"columns {', '.join(columns) or '(none)'} of {kind}: choose some, each once, of "
            f"{', '.join(known.names)}"
        )
    return pa.schema([known.field(name) for name in columns])


def check_kind(kind: str) -> None:
    """Refuse a kind that there is not."""
    if kind not in KINDS:
        raise UsageError(f"there are no {kind!r} in NEXMark; there are {', '.join(KINDS)}")


def _check(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UsageError(f"{name} is {value}; choose 1 to {most}")
