"""What a turn has sent, as sections of its frame: the one way to write it, and to read it back.

The bytes are those that travel: a batch of the output's columns as one Arrow message.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rewake.log.frame import Frame, Section, SectionKind
from rewake.model.batches import read_batch
from rewake.model.errors import DamagedFrame

__all__ = ["result_batch", "result_sections"]


def result_sections(outputs: Iterable[tuple[int, pa.RecordBatch]]) -> list[Section]:
    """One section of a frame for each output that has tuples."""
    return [Section(SectionKind.RESULTS, batch.serialize(), output) for output, batch in outputs]


def result_batch(
    frame: Frame, schema: pa.Schema, output: int = 0, *, log: str = "the log"
) -> pa.RecordBatch | None:
    """The tuples that a frame has sent on an output, or None; `DamagedFrame` if they are others."""
    payload = frame.section(SectionKind.RESULTS, output)
    if payload is None:
        return None
    what = f"the results of frame {frame.sequence} in {log}"
    columns = ", ".join(schema.names)
    batch = read_batch(payload, schema, f"{what} are not a batch of its columns ({columns})")
    if batch.num_rows > frame.tuples:
        raise DamagedFrame(
            f"{what}: it counts {frame.tuples} tuples and holds {batch.num_rows} on output {output}"
        )
    return batch
