"""Lookups in queries: what a database knows of each tuple (Hwang 2.2: SQL-read)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewake.graph.steps import Kind
from rewake.model.connectors import Database
from rewake.model.errors import UsageError
from rewake.operators.lookups import LookupStep
from rewake.recovery.approach import Approach, default_approach

if TYPE_CHECKING:
    from rewake.graph.stream import Columns, Stream

__all__ = ["lookup"]


def lookup(
    stream: Stream,
    database: Database,
    statement: str,
    *,
    how: str = "left",
    many: bool = False,
    name: str | None = None,
    shards: int | None = None,
    approach: Approach | None = None,
    fragment: str | None = None,
    partition_by: Columns | None = None,
) -> Stream:
    """Each tuple with what a statement finds for it: `SELECT name FROM persons WHERE id = :id`.

    `:id` is the tuple's column `id`.  The database is asked for the columns and types now, and for
    the distinct parameters of each batch when it comes.  `how` and `many` are those of
    `LookupStep`.  Options are those of all steps.

    It has no state, so its log is all that it needs to go on: under any approach that logs it is
    run as under continuous eventual checkpointing, which asks nothing again.
    """
    name = stream._named(name, Kind.LOOKUP)
    try:
        found = database.lookup(statement, stream.schema)
    except UsageError as error:
        raise type(error)(f"step {name!r}: {error}") from error
    step = LookupStep(found, how, many, name)
    options = stream._options(name, shards, approach, fragment, partition_by)
    chosen = options["approach"] or stream._query.approach
    options["approach"] = _without_replay(chosen) or options["approach"]
    return stream._add(
        Kind.LOOKUP,
        step.output_schema(stream.schema),
        stateless=step,
        computes=(("", step),),
        keys=stream._port.step.keys,
        **options,
    )


def _without_replay(approach: Approach) -> Approach | None:
    """Some approaches process input again that the log has the results of; here that would ask."""
    return default_approach() if approach.repeats_turns else None
