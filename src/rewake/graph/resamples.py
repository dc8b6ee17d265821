"""The step that gives the values of one stream at the times of another: `resample`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rewake.graph.promised import AS_QUERY
from rewake.graph.steps import Kind
from rewake.operators.aggregate.functions import listed
from rewake.operators.resampling.answers import Method
from rewake.operators.resampling.operator import ResampleSpec
from rewake.recovery.approach import Approach

if TYPE_CHECKING:
    from rewake.graph.stream import Columns, Stream

__all__ = ["resample"]


def resample(
    values: Stream,
    at: Stream,
    *,
    time: str,
    window: str | int,
    columns: str | Sequence[str] | Mapping[str, str],
    on: Columns = (),
    how: Method = "linear",
    at_time: str | None = None,
    missing: str = "null",
    route_late: bool = False,
    result: pa.DataType | None = None,
    on_error: str = "stop",
    name: str | None = None,
    shards: int = 1,
    approach: Approach | None = None,
    recover_within: str | None = AS_QUERY,
    checkpoint_budget: str | float = "5%",
    fragment: str | None = None,
) -> Stream:
    """The tuples of `at`, each with columns of `values` as they would be at its time.

    `columns` may rename: `{"price_then": "price"}`.  `window` is how far away a value may be, `on`
    names key columns that both streams have.  `how`, `missing`, `at_time`, `route_late` and
    `result` are those of `ResampleSpec`; with `on_error="divert"`, `output("dead")` are the tuples
    of `at` that a function fails for.  The rest are the options of all steps.
    """
    pairs = columns.items() if isinstance(columns, Mapping) else _same(columns)
    spec = ResampleSpec(
        columns=tuple(pairs),
        time=time,
        window=window,
        on=listed(on),
        how=how,
        at_time=at_time,
        missing=missing,
        route_late=route_late,
        result=pa.float64() if result is None else result,
        on_error=on_error,
    )
    return values.add_stateful(
        Kind.RESAMPLE,
        spec,
        at,
        name=values._named(name, Kind.RESAMPLE),
        shards=shards,
        approach=values._chosen(approach, recover_within, checkpoint_budget),
        fragment=fragment,
    )


def _same(columns: str | Sequence[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in listed(columns)]
