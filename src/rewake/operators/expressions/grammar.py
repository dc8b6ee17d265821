"""The SQL that expressions may use: for each kind of syntax tree, how it is compiled.

Columns, literals, + - * / %, comparisons, AND OR NOT, IS [NOT] NULL/TRUE/FALSE, [NOT] IN (...),
BETWEEN, LIKE and ILIKE (a backslash takes a wildcard literally), CASE, CAST, abs, round, lower,
upper, length, coalesce.  A new function is one entry in the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from rewake.operators.expressions import kernels
from rewake.operators.expressions.compiler import (
    Compiler,
    Grammar,
    Handler,
    Node,
    Rule,
    Tree,
    constant_node,
)
from rewake.operators.expressions.types import arrow_type


def _literal(compiler: Compiler, tree: Tree) -> Node:
    text = str(tree.this)
    return constant_node(pa.scalar(text)) if tree.args["is_string"] else _numeral(compiler, text)


def _numeral(compiler: Compiler, text: str) -> Node:
    if not text.lstrip("-").isdigit():
        return constant_node(pa.scalar(float(text), pa.float64()))
    if not -(2**63) <= int(text) < 2**63:
        raise compiler.mismatch(f"{text} is beyond 64 bits; write it as a float, {text}.0")
    return constant_node(pa.scalar(int(text), pa.int64()))


def _column(compiler: Compiler, tree: Tree) -> Node:
    if tree.args.get("table") or not isinstance(tree.this, exp.Identifier):
        raise compiler.mismatch(
            f"{tree.sql(dialect='duckdb')!r} is not a column; a step sees the columns of one "
            "stream, by their names alone"
        )
    return compiler.column(tree.name)


def _negative(compiler: Compiler, tree: Tree) -> Node:
    inner = tree.this
    if isinstance(inner, exp.Literal) and not inner.args["is_string"]:
        return _numeral(compiler, f"-{inner.this}")
    return compiler.call(pc.negate_checked, compiler.number(inner, "-"))


def _arithmetic(sign: str, function: Callable[..., Any]) -> Handler:
    def handler(compiler: Compiler, tree: Tree) -> Node:
        left, right = compiler.compile(tree.left), compiler.compile(tree.right)
        if any(pa.types.is_temporal(node.type) for node in (left, right)):
            return compiler.call(function, left, right)
        pair = compiler.unify([left, right, constant_node(pa.scalar(0, pa.int64()))], repr(sign))
        return compiler.call(function, *pair[:2])

    return handler


def _divide(compiler: Compiler, tree: Tree) -> Node:
    pair = [compiler.number(each, "'/'") for each in (tree.left, tree.right)]
    return compiler.call(pc.divide, *[compiler.cast(node, pa.float64()) for node in pair])


def _modulo(compiler: Compiler, tree: Tree) -> Node:
    pair = [compiler.number(each, "'%'") for each in (tree.left, tree.right)]
    left, right = compiler.unify(pair, "'%'")
    if not pa.types.is_integer(left.type):
        floats = [compiler.cast(node, pa.float64()) for node in (left, right)]
        return compiler.call(kernels.float_remainder, *floats)
    # The divisor is made harmless apart, so that for a literal it costs nothing per batch.
    divisor = compiler.call(kernels.safe_divisor, right)
    return compiler.call(kernels.integer_remainder, left, divisor)


def _comparison(sign: str, function: Callable[..., Any]) -> Handler:
    def handler(compiler: Compiler, tree: Tree) -> Node:
        return _compare(
            compiler, sign, function, compiler.compile(tree.left), compiler.compile(tree.right)
        )

    return handler


def _compare(
    compiler: Compiler, sign: str, function: Callable[..., Any], left: Node, right: Node
) -> Node:
    return compiler.call(function, *_comparable(compiler, sign, left, right))


def _comparable(compiler: Compiler, sign: str, left: Node, right: Node) -> tuple[Node, Node]:
    """A literal takes on the type of the column where it fits, so that no column is cast."""
    for this, other in ((left, right), (right, left)):
        if other.constant and not this.constant and pa.types.is_integer(this.type):
            narrow = kernels.exactly(other.run(None), this.type)
            if narrow is not None:
                fitting = constant_node(narrow)
                return (left, fitting) if this is left else (fitting, right)
    if left.type == right.type:
        return left, right
    first, second = compiler.unify([left, right], f"{sign!r} between")
    return first, second


def _logical(function: Callable[..., Any]) -> Handler:
    def handler(compiler: Compiler, tree: Tree) -> Node:
        return compiler.call(function, compiler.boolean(tree.left), compiler.boolean(tree.right))

    return handler


def _not(compiler: Compiler, tree: Tree) -> Node:
    return compiler.call(pc.invert, compiler.boolean(tree.this))


def _is(compiler: Compiler, tree: Tree) -> Node:
    wanted = tree.args["expression"]
    if isinstance(wanted, exp.Null):
        return compiler.call(pc.is_null, compiler.compile(tree.this))
    if not isinstance(wanted, exp.Boolean):
        raise compiler.mismatch("IS goes with NULL, TRUE or FALSE; to compare values write =")
    truth = compiler.boolean(tree.this)
    if not wanted.this:
        truth = compiler.call(pc.invert, truth)
    return compiler.call(lambda value: pc.fill_null(value, False), truth)


def _in(compiler: Compiler, tree: Tree) -> Node:
    listed = tree.args.get("expressions")
    if not listed:
        raise compiler.mismatch("IN needs a list of values, for example x IN (1, 2)")
    value = compiler.compile(tree.this)
    members = [compiler.compile(each) for each in listed]
    value, *members = compiler.unify([value, *members], "IN:")
    if all(node.constant for node in members):
        scalars = [node.run(None) for node in members]
        return compiler.call(kernels.membership(scalars, value.type), value)
    found = compiler.call(pc.equal, value, members[0])
    for member in members[1:]:
        found = compiler.call(pc.or_kleene, found, compiler.call(pc.equal, value, member))
    return found


def _between(compiler: Compiler, tree: Tree) -> Node:
    value, low, high = (
        compiler.compile(each) for each in (tree.this, tree.args["low"], tree.args["high"])
    )
    above = _compare(compiler, ">=", pc.greater_equal, value, low)
    below = _compare(compiler, "<=", pc.less_equal, value, high)
    return compiler.call(pc.and_kleene, above, below)


def _like(ignore_case: bool) -> Handler:
    def handler(compiler: Compiler, tree: Tree) -> Node:
        text = compiler.string(tree.this, "LIKE")
        pattern = compiler.string(tree.args["expression"], "LIKE")
        if not pattern.constant:
            raise compiler.mismatch("the pattern of LIKE must be a literal")
        if pattern.value is None:
            return constant_node(pa.scalar(None, pa.bool_()))
        options = pc.MatchSubstringOptions(pattern.value, ignore_case=ignore_case)
        return compiler.call(
            lambda value: pc.call_function("match_like", [value], options=options), text
        )

    return handler


def _case(compiler: Compiler, tree: Tree) -> Node:
    subject = compiler.compile(tree.this) if tree.this else None
    conditions = []
    for branch in tree.args["ifs"]:
        if subject is None:
            conditions.append(compiler.boolean(branch.this))
        else:
            wanted = compiler.compile(branch.this)
            conditions.append(_compare(compiler, "=", pc.equal, subject, wanted))
    otherwise = tree.args.get("default")
    default = compiler.compile(otherwise) if otherwise else constant_node(pa.scalar(None))
    results = [compiler.compile(branch.args["true"]) for branch in tree.args["ifs"]]
    *results, default = compiler.unify([*results, default], "CASE has branches of")
    run = kernels.choice(
        [node.run for node in conditions], [node.run for node in results], default.run
    )
    return compiler.finish(run, all(n.constant for n in (*conditions, *results, default)))


def _cast(compiler: Compiler, tree: Tree) -> Node:
    target = tree.args["to"]
    kind = arrow_type(target)
    if kind is None:
        raise compiler.mismatch(f"CAST to {target.sql(dialect='duckdb')} is not supported")
    return compiler.cast(compiler.compile(tree.this), kind)


def _absolute(compiler: Compiler, tree: Tree) -> Node:
    return compiler.call(pc.abs_checked, compiler.number(tree.this, "ABS"))


def _round(compiler: Compiler, tree: Tree) -> Node:
    value = compiler.number(tree.this, "ROUND")
    wanted = tree.args.get("decimals")
    number = compiler.compile(wanted) if wanted else constant_node(pa.scalar(0))
    digits = number.value if number.constant else None
    if not isinstance(digits, int):
        raise compiler.mismatch("ROUND needs a whole literal number of digits")
    # As in SQL: halves go away from zero.
    options = pc.RoundOptions(ndigits=digits, round_mode="half_towards_infinity")
    return compiler.call(lambda each: pc.round(each, options=options), value)


def _text_function(name: str, function: Callable[..., Any]) -> Handler:
    def handler(compiler: Compiler, tree: Tree) -> Node:
        return compiler.call(function, compiler.string(tree.this, name))

    return handler


def _coalesce(compiler: Compiler, tree: Tree) -> Node:
    trees = [tree.this, *tree.args.get("expressions", [])]
    nodes = compiler.unify([compiler.compile(each) for each in trees], "COALESCE has")
    return compiler.call(pc.coalesce, *nodes)


def _rule(handler: Handler, *reads: str) -> Rule:
    return Rule(handler, frozenset({"this", "expression", "expressions", *reads}))


GRAMMAR: Grammar = {
    exp.Literal: _rule(_literal, "is_string"),
    exp.Boolean: _rule(lambda _, tree: constant_node(pa.scalar(bool(tree.this)))),
    exp.Null: _rule(lambda _, __: constant_node(pa.scalar(None))),
    exp.Column: _rule(_column, "table"),
    exp.Paren: _rule(lambda compiler, tree: compiler.compile(tree.this)),
    exp.Neg: _rule(_negative),
    exp.Add: _rule(_arithmetic("+", pc.add_checked)),
    exp.Sub: _rule(_arithmetic("-", pc.subtract_checked)),
    exp.Mul: _rule(_arithmetic("*", pc.multiply_checked)),
    exp.Div: _rule(_divide, "typed", "safe"),
    exp.Mod: _rule(_modulo),
    exp.EQ: _rule(_comparison("=", pc.equal)),
    exp.NEQ: _rule(_comparison("<>", pc.not_equal)),
    exp.LT: _rule(_comparison("<", pc.less)),
    exp.LTE: _rule(_comparison("<=", pc.less_equal)),
    exp.GT: _rule(_comparison(">", pc.greater)),
    exp.GTE: _rule(_comparison(">=", pc.greater_equal)),
    exp.And: _rule(_logical(pc.and_kleene)),
    exp.Or: _rule(_logical(pc.or_kleene)),
    exp.Not: _rule(_not),
    exp.Is: _rule(_is),
    exp.In: _rule(_in, "query"),
    exp.Between: _rule(_between, "low", "high"),
    exp.Like: _rule(_like(ignore_case=False)),
    exp.ILike: _rule(_like(ignore_case=True)),
    exp.Case: _rule(_case, "ifs", "default"),
    exp.Cast: _rule(_cast, "to"),
    exp.Abs: _rule(_absolute),
    exp.Round: _rule(_round, "decimals"),
    exp.Lower: _rule(_text_function("LOWER", pc.utf8_lower)),
    exp.Upper: _rule(_text_function("UPPER", pc.utf8_upper)),
    exp.Length: _rule(_text_function("LENGTH", kernels.text_length)),
    exp.Coalesce: _rule(_coalesce),
}
