"""Drills of a user's own query: a Python file that defines `query`, or `build()`, which gives it.

There is no oracle for a query that nobody has seen before, so it runs twice: once left alone, which
is the reference, and once broken on purpose.  What always holds: a query whose two runs may
rightly differ is refused, because a comparison would prove nothing; and one that writes to sinks is
refused, because a drill must not touch what others read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.drill.compare import compare
from rewake.drill.drill import Drill
from rewake.graph.plan.plan import NodePlan, Plan
from rewake.graph.query import Query
from rewake.model.errors import RewakeError, UsageError
from rewake.model.given import shown
from rewake.oracle.verdict import Verdict

if TYPE_CHECKING:
    from rewake.drill.run import DrillResult


def load_query(path: Path) -> Query:
    """The `query` that a Python file defines, or what its `build()` gives.

    The file becomes a module with its own name, its folder the first place to look for modules, as
    when it is run as a script: functions of the query must be found again by the nodes.
    """
    if not path.is_file():
        raise UsageError(
            f"there is no file {path}; give a Python file that defines `query` or `build()`"
        )
    if not path.stem.isidentifier() or path.stem in sys.builtin_module_names:
        raise UsageError(f"{path.name} cannot be imported; name it like a Python module")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules.pop(path.stem, None)
    module = _run(path, lambda: import_module(path.stem))
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise UsageError(
            f"{path.name} has the name of another module, {module.__file__}; give it its own"
        )
    return _query_of(module, path)


def _query_of(module: ModuleType, path: Path) -> Query:
    """The query, which a file that is also a program makes in `build` and not when imported."""
    query, where = getattr(module, "query", None), "query"
    build = getattr(module, "build", None)
    if query is None and callable(build):
        where = "build()"
        try:
            signature(build).bind()
        except TypeError as error:
            raise UsageError(
                f"{path}: `build` is called without arguments, but has some: {error}; give them "
                "defaults, or define `query`, a rewake.Query"
            ) from error
        query = _run(path, build)
    if not isinstance(query, Query):
        raise UsageError(
            f"{path} must define `query`, a rewake.Query, or a function `build()` that returns "
            f"one; `{where}` is {shown(query)}"
        )
    return query


def _run(path: Path, call: Callable[[], Any]) -> Any:
    """What comes of a user's code; only errors of ours say by themselves what is wrong."""
    try:
        return call()
    except RewakeError:
        raise
    except Exception as error:
        raise UsageError(f"{path} does not run: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class FileDrill:
    """A user's query; `reference` is what each of its streams holds when nothing breaks."""

    query: Query
    tuples: int = 0
    reference: tuple[pa.Table, ...] | None = None

    rate: float | None = None
    gun: str | None = None

    @classmethod
    def of(cls, path: Path) -> FileDrill:
        """The drill of the query in a file, if it can have one."""
        drill = cls(load_query(path))
        check_can_be_drilled(drill.query.plan())
        return drill

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query.name

    def build(self) -> Query:
        """The query."""
        return self.query

    def streams(self) -> Sequence[tuple[str, int]]:
        """Every shard of every stream, once if it has several names."""
        found: dict[tuple[str, int], tuple[str, int]] = {}
        for name, places in self.query.plan().streams.items():
            for shard, place in enumerate(places):
                found.setdefault(place, (name, shard))
        return list(found.values())

    def prepared(self, place: Path, observe: Callable[[Drill, Path], DrillResult]) -> FileDrill:
        """Run it once without faults: the reference."""
        seen = observe(self, place / "reference")
        return replace(self, tuples=max(seen.read, 1), reference=tuple(seen.tables))

    def due_ms(self, times_us: Any, origin_ms: float) -> Any:  # noqa: ARG002
        """Its sources have no pace that is known."""
        raise AssertionError("a query from a file is not paced by the drill")

    def check(self, tables: Sequence[pa.Table]) -> Verdict:
        """Compare each stream with the reference, and add up."""
        assert self.reference is not None, "the reference run comes first"
        in_order = one_path(self.query.plan())
        verdicts = [
            compare(expected, found, in_order=in_order)
            for expected, found in zip(self.reference, tables, strict=True)
        ]
        return Verdict(*(sum(column) for column in zip(*verdicts, strict=True)))


def one_path(plan: Plan) -> bool:
    """Whether every node has one input: then nothing about the order of tuples is chance."""
    return all(len(node.inputs) <= 1 for node in plan.nodes)


def check_can_be_drilled(plan: Plan) -> None:
    """Refuse a query that a drill would harm, or about which it could say nothing."""
    for node in plan.nodes:
        if node.sink is not None:
            raise UsageError(
                f"step {node.fragment!r} writes to a sink, and a drill runs the query twice; keep "
                "the stream with .to_stream(...) in a copy of the query instead"
            )
        if any(each.produced for each in node.inputs):
            raise UsageError(
                f"step {node.fragment!r} is written by producers; a drill needs a finite source, "
                "for example rewake.Files(...) or rewake.Batches(...)"
            )
    if not plan.streams:
        raise UsageError(f"query {plan.query!r} keeps no stream; add .to_stream(...) to compare it")
    for node in _behind_merges(plan):
        # Also windows of time: a tuple moves the clock, so others may come too late.
        if not node.program.stateless:
            raise UsageError(
                f"the windows of step {node.fragment!r} depend on the order in which its inputs "
                "meet, and that order is chance: two runs may rightly differ, so comparing them "
                "would prove nothing; drill the query with one source and one shard of it"
            )


def _behind_merges(plan: Plan) -> Iterator[NodePlan]:
    """Nodes with several inputs, and all that is downstream of one."""
    behind: set[str] = set()
    changed = True
    while changed:  # cycles: until nothing is added
        before = len(behind)
        for node in plan.nodes:
            fed = {each.upstream for each in node.inputs if each.upstream is not None}
            if len(node.inputs) > 1 or fed & behind:
                behind.add(node.name)
        changed = len(behind) > before
    return (node for node in plan.nodes if node.name in behind)
