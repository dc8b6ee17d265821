"""What a shard hands out of a batch: results, and beside them late rows and dead letters.

A transform has one DataFrame.  So who asks for late rows, or for rows that a function fails for,
gets them among the results, each in a column of its own:

    results of the operator ... | _late                        | _dead
    a result                    | null                         | null
    null                        | the row as it came           | null
    null                        | null                         | the row as it came, and its error

What always holds: a row of the table is one of the three; without such columns it is a result.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from rewake.model.errors import SchemaMismatch
from rewake.operators.stateful import (
    FURTHER_PORTS,
    LATE_PORT,
    RESULTS_PORT,
    Emissions,
    KeyedOperator,
)

__all__ = ["LATE_COLUMN", "delivered", "delivered_schema"]

LATE_COLUMN: Final = "_late"


def _beside(operator: KeyedOperator) -> dict[int, pa.Field]:
    """The columns beside the results, by the output whose tuples they hold."""
    spec, found = operator.spec, {}
    if spec.route_late:
        found[LATE_PORT] = _field(LATE_COLUMN, operator.late_schema)
    for number, name in enumerate(spec.further_outputs, FURTHER_PORTS):
        found[number] = _field(f"_{name}", spec.further_schema(name, operator.input_schema))
    return found


def _field(name: str, schema: pa.Schema) -> pa.Field:
    return pa.field(name, pa.struct([each.with_nullable(True) for each in schema]))


def delivered_schema(operator: KeyedOperator) -> pa.Schema:
    """The columns of what is handed out."""
    beside = list(_beside(operator).values())
    if not beside:
        return operator.output_schema
    for each in beside:
        if each.name in operator.output_schema.names:
            raise SchemaMismatch(
                f"results have a column {each.name!r}, which is to hold rows that are no results; "
                "rename it"
            )
    return pa.schema([*(each.with_nullable(True) for each in operator.output_schema), *beside])


def delivered(operator: KeyedOperator, outputs: Emissions) -> list[pa.RecordBatch]:
    """What is handed out of these outputs of a turn; those that nobody asked for are left out."""
    beside = _beside(operator)
    if not beside:
        return [batch for output, batch in outputs if output == RESULTS_PORT]
    schema = delivered_schema(operator)
    return [
        _padded(batch, beside[output].name if output in beside else None, schema)
        for output, batch in outputs
        if output == RESULTS_PORT or output in beside
    ]


def _padded(batch: pa.RecordBatch, column: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of results, or of what one column beside them holds."""
    columns = []
    for field in schema:
        if column is None and field.name in batch.schema.names:
            columns.append(batch.column(field.name))
        elif field.name == column:
            parts = [
                each if each.type == part.type else each.cast(part.type)
                for each, part in zip(batch.columns, field.type, strict=True)
            ]
            columns.append(pa.StructArray.from_arrays(parts, fields=list(field.type)))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
