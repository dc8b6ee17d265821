"""Batches that stand alone, as in a frame or a packet: without dictionaries."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["encoded_as", "plain_batch", "plain_schema"]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries: a batch in a frame or packet stands alone."""
    if not any(pa.types.is_dictionary(each.type) for each in schema):
        return schema
    return pa.schema(
        [
            each.with_type(each.type.value_type) if pa.types.is_dictionary(each.type) else each
            for each in schema
        ]
    )


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without dictionaries."""
    schema = plain_schema(batch.schema)
    if schema is batch.schema:
        return batch
    columns = [
        column if column.type == each.type else column.cast(each.type)
        for column, each in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def encoded_as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A plain column with the dictionary it had; its values fit the indices they came with."""
    return column if column.type == kind else column.dictionary_encode().cast(kind)
