"""Batches in stored or sent bytes: a batch of the columns that are expected, or an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rewake.model.errors import DamagedFrame, RewakeError

__all__ = ["read_batch"]

# What Arrow raises for bytes that are no such batch.
_UNREADABLE = (pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError)


def read_batch(
    data: Any,
    schema: pa.Schema,
    wrong: str,
    error: type[RewakeError] = DamagedFrame,
    *,
    full: bool = True,
) -> pa.RecordBatch:
    """The batch that was serialized to these bytes, which it refers to.

    Anything else is an `error` that says what is `wrong`.  With `full`, every offset and every text
    is looked at: one that points elsewhere would read memory that is not its own.
    """
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate(full=full)
    except _UNREADABLE as fault:
        raise error(f"{wrong}: {fault}") from fault
    return batch
