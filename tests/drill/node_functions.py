"""Functions that queries of the tests give to their nodes, which import this module for them."""

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from rewake.operators.resampling.answers import Windows


def held(_key: int, tuples: pa.RecordBatch, state: dict[str, Any], now: datetime) -> Any:
    """Count what comes until nothing has come for a while."""
    return None, {"n": state["n"] + tuples.num_rows}, now + timedelta(milliseconds=200)


def quiet(key: int, _time: datetime, state: dict[str, Any]) -> Any:
    """Say how many there were, and begin anew."""
    return [{"k": key, "n": state["n"]}], None


def count_purchases(item: int, rows: pa.RecordBatch, kept: dict[str, Any]) -> Any:
    """Every purchase of an item so far."""
    return [{"item_id": item, "n": kept["n"] + rows.num_rows}], {"n": kept["n"] + rows.num_rows}


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each tuple as it is, and once more with its value turned around."""
    turned = [{**row, "v": -row["v"]} for row in batch.to_pylist()]
    pairs = [each for pair in zip(batch.to_pylist(), turned, strict=True) for each in pair]
    return pa.RecordBatch.from_pylist(pairs, batch.schema)


def larger_unless_huge(state: tuple[float, ...], value: float) -> tuple[float, ...]:
    """The larger of two; it fails for a very large one."""
    if value > 2.0**61:
        raise ValueError("a value is very large")
    return (max(state[0], value),)


def larger(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """The larger of two."""
    return (max(one[0], other[0]),)


def only(state: tuple[float, ...]) -> float:
    """What there is."""
    return state[0]


def value_unless_large(windows: Windows) -> np.ndarray:
    """The last value before; it fails for windows with a very large value in them."""
    for first, last in zip(windows.first, windows.last, strict=True):
        if (windows.values[first:last] > 2**61).any():
            raise ValueError("a value is very large")
    return windows.values[np.maximum(windows.last - 1, 0)].astype(float)
