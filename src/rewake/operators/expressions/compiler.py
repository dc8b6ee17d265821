"""From SQL text to closures over Arrow's compute kernels, checked against a schema.

A compiled node knows its type; literals and what is computed from literals alone are folded when
the expression is compiled.  Kernels are called eagerly: a stream event has ten thousand tuples or
more, so a call per operator and batch costs little, and planning anew per batch would cost more.

What always holds: a node's value is an array with one entry per tuple, or a scalar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot.errors import SqlglotError

from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.near import no_column
from rewake.operators.expressions import kernels
from rewake.operators.expressions.types import (
    cast_options,
    common_type,
    is_text,
    refuse_cast,
)

Run = Callable[[pa.RecordBatch], Any]
# A syntax tree of sqlglot, whose base class has had several names.
Tree = Any


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled part of an expression; `constant` when it is the same for every tuple."""

    type: pa.DataType
    run: Run
    constant: bool = False

    @property
    def value(self) -> Any:
        """The value of a constant, as a Python object."""
        return self.run(None).as_py()


@lru_cache(maxsize=512)
def _parsed(text: str) -> Tree:
    # DuckDB's dialect reads plain SQL, and DuckDB is what results are tested against.
    return sqlglot.parse_one(text, dialect="duckdb")


def parse(text: str, where: str) -> Tree:
    """The syntax tree of an expression; it is shared, so it must not be changed."""
    try:
        return _parsed(text)
    except SqlglotError as error:
        first = re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", str(error).splitlines()[0]).rstrip(".")
        raise UsageError(f"{where}{text!r} is not an SQL expression: {first}") from error
    except RecursionError as error:
        raise UsageError(f"{where}an expression of {len(text)} characters is too deep") from error


class Compiler:
    """Compiles one expression for one schema; remembers which columns it reads.

    The grammar says for each kind of syntax tree how it is compiled; it is in its own module.
    """

    def __init__(self, empty: pa.RecordBatch, where: str, text: str, grammar: Grammar) -> None:
        self.columns: set[str] = set()
        self._schema: pa.Schema = empty.schema
        self._where = where
        self._text = text
        self._grammar = grammar
        self._empty = empty

    def compile(self, tree: Tree) -> Node:
        """The node of a syntax tree."""
        rule = self._grammar.get(type(tree))
        # What a parser says and nobody reads would change the meaning without a word.
        said = {name for name, value in tree.args.items() if value} - {"negate"}
        if rule is None or not said <= rule.reads:
            raise UsageError(
                f"{self._where}{tree.sql(dialect='duckdb')!r} is not supported in an expression; "
                "a Python function of the batch can stand in its place"
            )
        try:
            node = rule.handler(self, tree)
        except RecursionError as error:
            raise UsageError(f"{self._where}the expression is nested too deeply") from error
        # `NOT LIKE` may be parsed as a LIKE that is negated.
        return self.call(pc.invert, node) if tree.args.get("negate") else node

    # --- building blocks ---------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *nodes: Node) -> Node:
        """A node that calls a kernel on the values of others."""
        runs = [node.run for node in nodes]
        run: Run
        match runs:
            case [one]:
                run = lambda batch: function(one(batch))  # noqa: E731
            case [left, right]:
                run = lambda batch: function(left(batch), right(batch))  # noqa: E731
            case _:
                run = lambda batch: function(*[each(batch) for each in runs])  # noqa: E731
        return self.finish(run, all(node.constant for node in nodes))

    def finish(self, run: Run, constant: bool) -> Node:
        """A node whose type is what `run` gives for no tuples; constants are computed now."""
        try:
            value = run(self._empty)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise self.mismatch(str(error).splitlines()[0]) from error
        except pa.ArrowInvalid as error:
            raise UsageError(f"{self._where}{self._text!r} has no value: {error}") from error
        if constant:
            return constant_node(value)
        return Node(value.type, run)

    def mismatch(self, problem: str) -> SchemaMismatch:
        """The error for types that do not fit."""
        return SchemaMismatch(f"{self._where}{self._text!r}: {problem}")

    def cast(self, node: Node, kind: pa.DataType) -> Node:
        """The node as another type; a value that does not survive it is an error."""
        if node.type == kind:
            return node
        problem = refuse_cast(node.type, kind)
        if problem:
            raise self.mismatch(problem)
        options = cast_options(node.type, kind)
        if pa.types.is_floating(node.type) and pa.types.is_integer(kind):
            return self.call(lambda value: kernels.round_to_integer(value, options), node)
        return self.call(lambda value: pc.cast(value, options=options), node)

    def unify(self, nodes: Sequence[Node], what: str) -> list[Node]:
        """The nodes as one type: that of all, or the wider of numbers, or what a literal fits."""
        kind, problem = common_type([(node.type, node.constant) for node in nodes])
        if kind is None:
            raise self.mismatch(f"{what} {problem}; CAST one of them")
        return [self.cast(node, kind) for node in nodes]

    def boolean(self, tree: Tree) -> Node:
        """A node that must be a truth value."""
        node = self.compile(tree)
        if pa.types.is_null(node.type):
            return self.cast(node, pa.bool_())
        if not pa.types.is_boolean(node.type):
            raise self.mismatch(
                f"{tree.sql(dialect='duckdb')!r} is of type {node.type}, not a truth value"
            )
        return node

    def number(self, tree: Tree, use: str) -> Node:
        """A node that must be a number, as the type arithmetic is done in."""
        node = self.compile(tree)
        kind, _ = common_type([(node.type, False), (pa.int64(), False)])
        if kind is None:
            raise self.mismatch(f"{use} needs a number, but {tree.sql()!r} is {node.type}")
        return self.cast(node, kind)

    def string(self, tree: Tree, use: str) -> Node:
        """A node that must be text."""
        node = self.compile(tree)
        if pa.types.is_null(node.type):
            return self.cast(node, pa.string())
        if not is_text(node.type):
            raise self.mismatch(f"{use} needs text, but {tree.sql()!r} is {node.type}")
        return node

    def column(self, name: str) -> Node:
        """A column of the stream, without a dictionary."""
        places = self._schema.get_all_field_indices(name)
        if len(places) != 1:
            raise SchemaMismatch(f"{self._where}{no_column(name, self._schema.names, places)}")
        self.columns.add(name)
        (place,) = places
        kind = self._schema.field(place).type
        if pa.types.is_dictionary(kind):
            return Node(kind.value_type, lambda batch: batch.column(place).dictionary_decode())
        return Node(kind, lambda batch: batch.column(place))


def constant_node(value: Any) -> Node:
    """A node of one scalar."""
    return Node(value.type, lambda _: value, constant=True)


Handler = Callable[[Compiler, Tree], Node]


class Rule(NamedTuple):
    """How a kind of syntax tree is compiled, and which of its arguments the handler reads."""

    handler: Handler
    reads: frozenset[str]


Grammar = Mapping[type, Rule]
