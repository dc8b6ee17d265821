"""Dead letters: what a user's function fails for, on an output of its own, with the error's text.

Who asks for `on_error="divert"` gets everything else; otherwise the first failure stops the query.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rewake.model.errors import ArithmeticOverflow, SchemaMismatch, UsageError

__all__ = ["DEAD", "FOR_A_TUPLE", "check_on_error", "dead_letters", "dead_schema", "diverts"]

# The output's name.
DEAD = "dead"
# What functions raise because of a tuple, and not of a machine or a system outside.
FOR_A_TUPLE = (UsageError, ArithmeticOverflow)
_ERROR = "error"


def check_on_error(on_error: str) -> None:
    """Refuse what is neither to stop nor to divert."""
    if on_error not in ("stop", "divert"):
        raise UsageError(f"on_error is 'stop' or 'divert', not {on_error!r}")


def diverts(on_error: str) -> bool:
    """Whether failures go to an output of their own."""
    return on_error == "divert"


def dead_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of dead letters, where failing tuples have these, without dictionaries."""
    if _ERROR in schema.names:
        raise SchemaMismatch(
            "tuples that a step fails for get a column 'error', and there is one already; rename it"
        )
    return schema.append(pa.field(_ERROR, pa.string(), nullable=False))


def dead_letters(batch: pa.RecordBatch, errors: Sequence[str]) -> pa.RecordBatch:
    """Failing tuples, each with its error."""
    texts = pa.array(errors, pa.string())
    return pa.RecordBatch.from_arrays([*batch.columns, texts], schema=dead_schema(batch.schema))
