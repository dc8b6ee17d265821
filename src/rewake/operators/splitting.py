"""Split: a filter with several predicates, each its own output (Hwang 2.2: Filter).

Invariants: a tuple goes to the output of the first predicate that holds for it (null does not
hold); if none does, to the rest if that is wanted, and else nowhere.  Outputs keep the order of the
input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.operators.classes import OperatorClass
from rewake.operators.columns.arrays import Array
from rewake.operators.stateless import FilterStep

__all__ = ["SplitStep"]


@dataclass(frozen=True)
class SplitStep:
    """Predicates by the name of their output; with `rest`, one more output for all other tuples."""

    outputs: tuple[tuple[str, FilterStep], ...]
    rest: str | None = None
    name: str = "split"

    @property
    def names(self) -> tuple[str, ...]:
        """The outputs, in the order of their ports."""
        names = tuple(name for name, _ in self.outputs)
        return names if self.rest is None else (*names, self.rest)

    @property
    def operator_class(self) -> OperatorClass:
        """That of its predicates."""
        return min(step.operator_class for _, step in self.outputs)

    def divide(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The tuples of each output."""
        left: Array = np.ones(batch.num_rows, np.bool_)
        parts = []
        for _, step in self.outputs:
            flags = pc.fill_null(step.flags(batch), False)
            held = flags.to_numpy(zero_copy_only=False) & left
            left &= ~held
            parts.append(_chosen(batch, held))
        return parts if self.rest is None else [*parts, _chosen(batch, left)]


def _chosen(batch: pa.RecordBatch, flags: Array) -> pa.RecordBatch:
    return batch if flags.all() else batch.filter(pa.array(flags))
