"""Lookup: adds to each tuple what a system outside knows of it (Hwang 2.2: SQL-read).

The distinct combinations of parameters in a batch are asked for at once, so the number of questions
does not grow with the number of tuples.

What always holds: tuples keep their order; all tuples of a batch with equal parameters get the same
answer; with `how="left"` no tuple is left out, and one for which nothing is found has nulls.

Its class is arbitrary: the same tuple may get another answer later.  So it is never asked again for
a tuple whose answer has left the node: what it gives must be logged (`must_log`), and it shares no
fragment with a step that has state, which would be rebuilt from answers that differ.

When the system does not answer, `apply` raises `Unavailable` and has changed nothing: the host must
offer the same batch again after a while, and take no other meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.model.connectors import Lookup, LookupReader
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.near import no_column
from rewake.model.stream_event import no_tuples
from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Int64s

__all__ = ["HOW", "LookupStep", "distinct_rows"]

HOW = ("left", "inner")
_LONGEST_WORDS = 72


class _Opened:
    """The reader of a lookup, opened when it is first needed; copies start without one."""

    def __init__(self) -> None:
        self._reader: LookupReader | None = None

    def get(self, lookup: Lookup) -> LookupReader:
        if self._reader is None:
            self._reader = lookup.open()
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def __reduce__(self) -> tuple[type[_Opened], tuple[()]]:
        return _Opened, ()


def _opened() -> Any:
    return field(default_factory=_Opened, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class LookupStep:
    """Each tuple with the columns that were found for it.

    Nothing found: nulls (`how="left"`), or the tuple is dropped (`how="inner"`).  Several rows
    found: with `many` as many tuples, in the order of the answer; otherwise an error.
    """

    lookup: Lookup
    how: str = "left"
    many: bool = False
    name: str = "lookup"
    _opened: _Opened = _opened()

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise UsageError(
                f"step {self.name!r}: how is one of {', '.join(HOW)}, not {self.how!r}"
            )

    @property
    def must_log(self) -> str:
        """It cannot be asked again."""
        return "what a database answers may change"

    @property
    def one_to_one(self) -> bool:
        """Whether nothing is dropped and nothing multiplied."""
        return self.how == "left" and not self.many

    @property
    def operator_class(self) -> OperatorClass:
        """The same input may give another output."""
        return OperatorClass.ARBITRARY

    @property
    def text(self) -> str:
        """What is asked, for people."""
        return str(self.lookup.describe().get("statement", self.name))

    @property
    def words(self) -> str:
        """What it does, in one short line for people."""
        text = f"{self.how} lookup {' '.join(self.text.split())}"
        return text if len(text) <= _LONGEST_WORDS else text[: _LONGEST_WORDS - 1] + "…"

    def identity(self) -> dict[str, Any]:
        """What makes it the same lookup, as JSON values."""
        return {"lookup": self.lookup.describe(), "how": self.how, "many": self.many}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the input, then those that are found."""
        for each in self.lookup.parameters:
            if each not in schema.names:
                raise SchemaMismatch(f"step {self.name!r}: {no_column(each, schema.names)}")
        for each in self.lookup.schema.names:
            if each in schema.names:
                raise SchemaMismatch(
                    f"step {self.name!r}: it finds a column {each!r}, which the tuples have "
                    f"already; give it another name: SELECT {each} AS found_{each}"
                )
        return pa.schema([*schema, *self.lookup.schema])

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The tuples with what was found for them; `Unavailable` when there is no answer yet."""
        schema = self.output_schema(batch.schema)
        if not batch.num_rows:
            return no_tuples(schema)
        parameters = batch.select(list(self.lookup.parameters))
        firsts, which = distinct_rows(parameters)
        asked = parameters.take(pa.array(firsts))
        found = self._opened.get(self.lookup).rows(asked)
        rows, answers = self._matched(found, asked, which)
        columns = [*batch.take(pa.array(rows)).columns, *_taken(found, answers)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def close(self) -> None:
        """Release what is held; the next batch opens it again."""
        self._opened.close()

    def _matched(
        self, found: pa.RecordBatch, asked: pa.RecordBatch, which: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Pairs of a tuple and the found row that goes with it, -1 for none, by tuple."""
        of = found.column(0).to_numpy().astype(np.int64)
        counts = np.bincount(of, minlength=asked.num_rows)
        if not self.many and counts.max(initial=0) > 1:
            raise self._several(asked, int(counts.argmax()), int(counts.max()))
        starts = np.cumsum(counts) - counts
        tuples = np.arange(which.size, dtype=np.int64)
        times = counts[which]
        if self.how == "left":
            times = np.maximum(times, 1)
        rows = np.repeat(tuples, times)
        # The number of each pair among those of its tuple.
        nth = np.arange(rows.size) - np.repeat(np.cumsum(times) - times, times)
        answers = np.where(counts[which[rows]] > 0, starts[which[rows]] + nth, -1)
        return rows, answers

    def _several(self, asked: pa.RecordBatch, row: int, count: int) -> UsageError:
        values = ", ".join(
            f"{name} = {column[row].as_py()!r}"
            for name, column in zip(asked.schema.names, asked.columns, strict=True)
        )
        return UsageError(
            f"step {self.name!r}: {count} rows were found for {values or 'a tuple'}; say many=True "
            "to get a tuple for each of them, or have the statement choose one"
        )


def distinct_rows(batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Where each distinct row comes first, and for each row which of the distinct ones it is."""
    codes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        plain = column.cast(column.type.value_type) if _is_dictionary(column) else column
        encoded = plain.dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        # Made dense after each column, so that products stay far from overflow.
        _, codes = np.unique(codes * size + encoded.indices.to_numpy(), return_inverse=True)
    _, firsts, which = np.unique(codes, return_index=True, return_inverse=True)
    # In the order in which they come: equal batches ask equal questions.
    order = np.argsort(firsts, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    return firsts[order].astype(np.int64), places[which].astype(np.int64)


def _is_dictionary(column: pa.Array) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _taken(found: pa.RecordBatch, answers: Int64s) -> list[pa.Array]:
    indices = pa.array(answers, mask=answers < 0)
    return [column.take(indices) for column in found.columns[1:]]
