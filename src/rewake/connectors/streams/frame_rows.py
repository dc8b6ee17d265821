"""The rows that a frame of a log holds on an output, read from stored bytes with care."""

from __future__ import annotations

import pyarrow as pa

from rewake.log.frame import Frame, SectionKind
from rewake.model.errors import DamagedFrame
from rewake.operators.kit.batches import read_batch

__all__ = ["rows_of"]


def rows_of(frame: Frame, output: int, schema: pa.Schema, path: str) -> pa.RecordBatch | None:
    """The frame's rows on an output, or None; `DamagedFrame` when they are no such batch."""
    payload = frame.section(SectionKind.RESULTS, output)
    if payload is None:
        return None
    wrong = f"the results of frame {frame.sequence} in {path} are not a batch of the stream's "
    batch = read_batch(payload, schema, f"{wrong}columns ({', '.join(schema.names)})")
    if batch.num_rows > frame.tuples:
        raise DamagedFrame(
            f"frame {frame.sequence} in {path} counts {frame.tuples} tuples and holds "
            f"{batch.num_rows} on output {output}"
        )
    return batch
