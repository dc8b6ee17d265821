"""The columns of a join's results: which column of which input each of them is.

The result has the columns of the left input, then those of the right.  Equality columns of the
same name are one column, with the value of whichever tuple there is.  Other columns of the same
name get the suffixes.  The column of the left time's name holds the result's timestamp, the later
of the two times; the left tuple's own time is there only if the left suffix tells it apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from rewake.model.errors import RewakeError, SchemaMismatch
from rewake.model.stream_event import TIME_LIMIT
from rewake.operators.columns.arrays import Array, Int64s, arrow_array
from rewake.operators.columns.values import check_names
from rewake.operators.dead_letters import FOR_A_TUPLE
from rewake.operators.expressions.compiler import Tree, parse
from rewake.operators.expressions.expression import Bound, Computed, Expression
from rewake.operators.failing import Failure, failures

_LEFT, _RIGHT, _KEY, _TIME = range(4)


class Source(Protocol):
    """Tuples of one input, by row."""

    @property
    def times(self) -> Int64s:
        """Event times."""

    def take(self, rows: Array, places: list[int]) -> list[pa.Array]:
        """These columns of these rows; a row below 0 is of nulls."""


class Arriving(NamedTuple):
    """The tuples of a stream event as a source."""

    batch: pa.RecordBatch
    times: Int64s

    def take(self, rows: Array, places: list[int]) -> list[pa.Array]:
        """These columns of these rows, all of which are there."""
        indices = pa.array(rows)
        return [self.batch.column(place).take(indices) for place in places]


class _Column(NamedTuple):
    field: pa.Field
    kind: int
    left: int = -1
    right: int = -1


class JoinedColumns:
    """The result columns for inputs of two schemas (without dictionaries)."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        on: Sequence[tuple[str, str]],
        time: str,
        suffixes: tuple[str, str],
    ) -> None:
        shared = {name for name, other in on if name == other}
        both = (set(left.names) & set(right.names)) - shared
        self._columns: list[_Column] = []
        for place, each in enumerate(left):
            name = each.name + suffixes[0] if each.name in both else each.name
            if each.name == time:
                self._columns.append(_Column(pa.field(time, each.type), _TIME))
                name = time + suffixes[0]
                if not suffixes[0]:
                    continue
            kind = _KEY if each.name in shared else _LEFT
            other = right.get_field_index(each.name) if kind == _KEY else -1
            self._columns.append(_Column(pa.field(name, each.type), kind, place, other))
        for place, each in enumerate(right):
            if each.name not in shared:
                name = each.name + suffixes[1] if each.name in both else each.name
                self._columns.append(_Column(pa.field(name, each.type), _RIGHT, -1, place))
        check_names(
            [column.field.name for column in self._columns],
            "give other suffixes, for example suffixes=('_left', '_right'), or rename one upstream",
        )
        self.schema = pa.schema([column.field for column in self._columns])

    def only(self, names: Sequence[str]) -> JoinedColumns:
        """Some of the columns, in their order."""
        fewer = object.__new__(JoinedColumns)
        fewer._columns = [each for each in self._columns if each.field.name in names]
        fewer.schema = pa.schema([column.field for column in fewer._columns])
        return fewer

    def origins(self) -> dict[str, tuple[int, int]]:
        """By name: which input a column is of, and its place there; only where that is all."""
        return {
            column.field.name: (column.kind, max(column.left, column.right))
            for column in self._columns
            if column.kind in (_LEFT, _RIGHT)
        }

    def batch(
        self, left: Source, right: Source, left_rows: Array, right_rows: Array
    ) -> pa.RecordBatch:
        """Results of pairs of rows; a row below 0 stands for no tuple."""
        lefts = _taken(left, left_rows, [column.left for column in self._columns])
        alone = bool(left_rows.size) and int(left_rows.min()) < 0
        wanted = [each.right for each in self._columns if each.kind != _KEY or alone]
        rights = _taken(right, right_rows, wanted)
        arrays = []
        for column in self._columns:
            if column.kind == _TIME:
                later = np.maximum(_times(left, left_rows), _times(right, right_rows))
                arrays.append(arrow_array(later, column.field.type))
            elif column.kind == _KEY and alone:
                here = pa.array(left_rows >= 0)
                arrays.append(pc.if_else(here, lefts[column.left], rights[column.right]))
            elif column.kind == _RIGHT:
                arrays.append(rights[column.right])
            else:
                arrays.append(lefts[column.left])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _taken(source: Source, rows: Array, places: list[int]) -> dict[int, pa.Array]:
    wanted = sorted({place for place in places if place >= 0})
    return dict(zip(wanted, source.take(rows, wanted), strict=True)) if wanted else {}


def _times(source: Source, rows: Array) -> Int64s:
    """The times of rows, below all times where there is no tuple."""
    if source.times.size == 0:
        return np.full(rows.size, -TIME_LIMIT, np.int64)
    return np.where(rows >= 0, source.times[rows], -TIME_LIMIT)


def implied_equalities(where: Computed | None, columns: JoinedColumns) -> list[tuple[int, int]]:
    """Places of left and right columns that are equal, of one type, wherever a condition holds.

    Partners are looked for among the tuples that are equal in these, too: a condition that few
    pairs meet need then not be computed for many.
    """
    if not isinstance(where, Expression):
        return []
    origins, found = columns.origins(), []
    for one, other in _equal_columns(parse(where.text, "")):
        sides = dict([origins.get(one, (-1, -1)), origins.get(other, (-1, -1))])
        kinds = [columns.schema.field(name).type for name in (one, other) if name in origins]
        if set(sides) == {_LEFT, _RIGHT} and kinds[0] == kinds[1] and _is_exact(kinds[0]):
            found.append((sides[_LEFT], sides[_RIGHT]))
    return found


def _equal_columns(tree: Tree) -> Iterator[tuple[str, str]]:
    """Names that the condition `a = b AND ...` compares."""
    if isinstance(tree, exp.Paren):
        yield from _equal_columns(tree.this)
    elif isinstance(tree, exp.And):
        yield from _equal_columns(tree.this)
        yield from _equal_columns(tree.expression)
    elif isinstance(tree, exp.EQ):
        sides = (tree.this, tree.expression)
        if all(isinstance(each, exp.Column) for each in sides):
            yield tree.this.name, tree.expression.name


def _is_exact(kind: pa.DataType) -> bool:
    """Whether keys of this type are equal exactly when SQL says so."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_timestamp(kind)
    )


class Judged(NamedTuple):
    """Of each pair whether a condition holds; the pairs that it fails for, and how."""

    holds: Array
    failing: Int64s
    errors: list[str]


_NO_FAILURES = np.zeros(0, np.int64)


class PairCondition:
    """A further condition on pairs, over the columns of the result.

    Where `divert` is set, it does not hold for pairs that it fails for; otherwise that is an error.
    """

    def __init__(self, where: Computed, columns: JoinedColumns, *, divert: bool) -> None:
        self._divert = divert
        read = where.bind(columns.schema).columns
        # Something must say how many pairs there are, even if no column is read.
        self._columns = columns.only([*read] or columns.schema.names[:1])
        self._all_columns = columns
        self._text = where.text
        self._bound: Bound = where.bind(self._columns.schema)
        if not pa.types.is_boolean(self._bound.type):
            raise SchemaMismatch(
                f"where: {where.text!r} is of type {self._bound.type}; a join needs a truth value, "
                "for example a comparison"
            )

    def judge(self, left: Source, right: Source, left_rows: Array, right_rows: Array) -> Judged:
        """For each pair whether the condition is true; null is not.

        An error names the first pair that it cannot be computed for.
        """

        def of(which: Array | slice) -> Array:
            pairs = self._columns.batch(left, right, left_rows[which], right_rows[which])
            held: Array = pc.fill_null(self._bound.evaluate(pairs), False).to_numpy(False)
            return held

        def between(start: int, end: int) -> Array:
            return of(slice(start, end))

        try:
            return Judged(between(0, left_rows.size), _NO_FAILURES, [])
        except FOR_A_TUPLE as error:
            found = failures(between, 0, left_rows.size, FOR_A_TUPLE)
            if not self._divert:
                first = next(found, None)
                raise self._named(error, first, left, right, left_rows, right_rows) from error
        failed = list(found)
        rows = [np.arange(each.start, each.end) for each in failed]
        failing = np.concatenate([_NO_FAILURES, *rows])
        errors = [str(each.error) for each in failed for _ in range(each.start, each.end)]
        holds = np.zeros(left_rows.size, np.bool_)
        rest = np.delete(np.arange(left_rows.size), failing)
        holds[rest] = of(rest)
        return Judged(holds, failing, errors)

    def _named(
        self,
        error: RewakeError,
        first: Failure | None,
        left: Source,
        right: Source,
        left_rows: Array,
        right_rows: Array,
    ) -> RewakeError:
        """The error with the first pair that it is about."""
        if first is None or not first.alone:
            return error
        rows = left_rows[first.start : first.end], right_rows[first.start : first.end]
        pair = self._all_columns.batch(left, right, *rows).to_pylist()[0]
        return type(error)(
            f"where: {self._text!r} cannot be computed for the pair {pair}: {first.error}; "
            "on_error='divert' sends such pairs elsewhere"
        )
