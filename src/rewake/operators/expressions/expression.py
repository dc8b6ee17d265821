"""Expressions: SQL text, or a Python function of a batch, over the columns of a stream event.

    Expression("item_price < 500 AND item_id IS NOT NULL")
    ArrowFunction(lambda batch: pc.multiply(batch["item_price"], 2))

Both are values that say what is computed; `bind` checks them against a schema and gives the
compiled form, whose type is known before the first tuple.  Two expressions are the same when their
texts are; two functions when their names and their code are.

Rules of the SQL: three-valued logic.  Integer arithmetic has 64 bits, and overflow is an error,
never a wrong number.  `/` divides as floats (IEEE: by zero it gives inf or NaN); `%` by integer
zero gives null.  A cast that a value does not survive is an error; CASE computes a branch only for
the rows that take it, so it can guard against such values.  Column names are case-sensitive.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from rewake.model.errors import ArithmeticOverflow, SchemaMismatch, UsageError
from rewake.model.stream_event import no_tuples
from rewake.operators.expressions.compiler import Compiler, Run, parse
from rewake.operators.expressions.grammar import GRAMMAR

BatchFunction = Callable[[pa.RecordBatch], Any]
# What the module is called that a process was begun with, here and where it was forked to.
_PROGRAMS = ("__main__", "__mp_main__")


class Bound(Protocol):
    """An expression compiled for one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of every value it computes."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads; a function may read any of them."""

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per tuple of a batch of the schema that it was bound to."""


@dataclass(frozen=True)
class Expression:
    """An SQL expression, by its text; syntax is checked at once, columns by `bind`."""

    text: str

    # Each tuple gives its value by itself, whatever stands around it.
    tuple_by_tuple: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(
                f"an expression is SQL text, not {self.text!r}; for a constant write it as text, "
                'for example "0" or "\'none\'"'
            )
        parse(self.text, "")

    def bind(
        self, schema: pa.Schema, step: str = "", empty: pa.RecordBatch | None = None
    ) -> BoundExpression:
        """Compile for a schema; errors name the step and the column.

        `empty` is a batch of the schema without tuples: who binds many makes it once.
        """
        where = f"step {step!r}: " if step else ""
        return BoundExpression(self.text, no_tuples(schema) if empty is None else empty, where)

    def identity(self) -> dict[str, Any]:
        """What makes it the same expression, as JSON values."""
        return {"sql": self.text}


class BoundExpression:
    """An SQL expression compiled for a schema; evaluating it calls Arrow's kernels."""

    def __init__(self, text: str, empty: pa.RecordBatch, where: str) -> None:
        self._text = text
        self._where = where
        compiler = Compiler(empty, where, text, GRAMMAR)
        node = compiler.compile(parse(text, where))
        if pa.types.is_null(node.type):
            raise SchemaMismatch(
                f"{where}{text!r} is always null and has no type; write CAST(NULL AS a type)"
            )
        self.type: pa.DataType = node.type
        self.columns = frozenset(compiler.columns)
        self._run: Run = node.run

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per tuple."""
        try:
            value = self._run(batch)
        except pa.ArrowInvalid as error:
            raise self._failure(error) from error
        return value if isinstance(value, pa.Array) else pa.repeat(value, batch.num_rows)

    def _failure(self, error: Exception) -> Exception:
        what = f"{self._where}{self._text!r} cannot be computed for a tuple: {error}"
        if "overflow" in str(error):
            return ArithmeticOverflow(f"{what}; compute in floats, for example CAST(x AS DOUBLE)")
        return SchemaMismatch(f"{what}; filter such tuples out before, or guard with CASE WHEN")


@dataclass(frozen=True)
class ArrowFunction:
    """A Python function from a record batch to an array with one value per tuple.

    It must be a function of its argument alone: after a crash it is called again and must give the
    same, however the tuples are cut into batches.
    """

    function: BatchFunction

    @property
    def text(self) -> str:
        """Its name, for people."""
        return f"{_name_of(self.function)}(batch)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrowFunction) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(json.dumps(self.identity(), sort_keys=True))

    def identity(self) -> dict[str, Any]:
        """What makes it the same function: where it is, and a hash of its code."""
        return function_identity(self.function)

    def bind(
        self, schema: pa.Schema, step: str = "", empty: pa.RecordBatch | None = None
    ) -> BoundFunction:
        """Call it on an empty batch of the schema to learn its type."""
        return BoundFunction(self, no_tuples(schema) if empty is None else empty, step)

    def label(self, step: str) -> str:
        """What errors call it."""
        return f"step {step!r}: function {self.text}" if step else f"function {self.text}"

    def call(self, batch: pa.RecordBatch, step: str = "") -> Any:
        """What it returns for a batch; whatever it raises becomes an error that names the step."""
        try:
            return self.function(batch)
        except KeyError as error:
            names = ", ".join(batch.schema.names) or "none"
            raise SchemaMismatch(
                f"{self.label(step)}: {' '.join(map(str, error.args))}; columns: {names}"
            ) from error
        except Exception as error:
            raise UsageError(
                f"{self.label(step)} failed on a batch of {batch.num_rows} tuples with "
                f"{type(error).__name__}: {error}; it must work on any batch, also an empty one"
            ) from error


class BoundFunction:
    """A function whose type is known; what it returns later is held to it."""

    def __init__(self, function: ArrowFunction, empty: pa.RecordBatch, step: str) -> None:
        self._function = function
        self._step = step
        self._what = function.label(step)
        self.columns = frozenset(empty.schema.names)
        self.type: pa.DataType = self._array(function.call(empty, step)).type

    def _array(self, value: Any) -> pa.Array:
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        if not isinstance(value, pa.Array):
            raise SchemaMismatch(
                f"{self._what} returned {type(value).__name__}; it must return a pyarrow.Array "
                "with one value per tuple"
            )
        return value

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value per tuple."""
        value = self._array(self._function.call(batch, self._step))
        if value.type != self.type or len(value) != batch.num_rows:
            raise SchemaMismatch(
                f"{self._what} returned {len(value)} values of type {value.type} for "
                f"{batch.num_rows} tuples; on an empty batch its type was {self.type}"
            )
        return value


Computed = Expression | ArrowFunction


def expression(value: str | Computed | BatchFunction) -> Computed:
    """SQL text or a function as the value that stands for it."""
    if isinstance(value, Expression | ArrowFunction):
        return value
    return ArrowFunction(value) if callable(value) else Expression(value)


# --- the identity of functions ---------------------------------------------------------------


def function_identity(function: Callable[..., Any]) -> dict[str, Any]:
    """Module, name and a hash of the code: the same in every process of one Python version.

    Of the module only the last part of its name, and of a program's that of its file: begun as
    `python job.py` or `python -m jobs.job`, or imported as `jobs.job`, it is the same function.
    """
    digest = hashlib.sha256()
    for part in _code_parts(function):
        digest.update(part.encode())
        digest.update(b"\0")
    module = getattr(function, "__module__", None) or type(function).__module__
    return {"function": f"{_place(module)}.{_name_of(function)}", "code": digest.hexdigest()[:32]}


def _place(module: str) -> str:
    program = getattr(sys.modules.get(module), "__file__", None) if module in _PROGRAMS else None
    if program:
        return str(program).replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    return module.rpartition(".")[2]


def _name_of(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def _code_parts(function: Any) -> Iterator[str]:
    code = getattr(function, "__code__", None)
    if code is None and hasattr(function, "func"):  # functools.partial
        yield repr((_plain_values(function.args), _plain_values(function.keywords.items())))
        yield from _code_parts(function.func)
        return
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    if code is None:  # compiled: its name has to be enough
        return
    yield from _constants(code)
    yield repr(_plain_values(getattr(function, "__defaults__", None) or ()))
    cells = getattr(function, "__closure__", None) or ()
    yield repr(_plain_values(cell.cell_contents for cell in cells))


def _constants(code: CodeType) -> Iterator[str]:
    # Not co_filename or line numbers: moving a function does not make it another one.
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants(constant)
        elif isinstance(constant, frozenset):  # whose order differs from process to process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _plain_values(values: Any) -> list[str]:
    """Values whose text is the same in every process; of others, their type."""
    plain = (int, float, str, bytes, bool, type(None), tuple)
    return [
        repr(each)
        if isinstance(each, plain)
        else f"{_place(type(each).__module__)}.{type(each).__name__}"
        for each in values
    ]
