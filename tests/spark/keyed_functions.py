"""Functions over keys that shard hosts import: sessions, made by hand."""

from typing import Any

import pyarrow as pa

GAP = 4
OUTPUT = pa.schema(
    [
        ("item", pa.int64()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("price", pa.float64()),
        ("n", pa.int64()),
    ]
)
STATE = {"start": pa.int64(), "last": pa.int64(), "sum": (pa.int64(), 0), "n": (pa.int64(), 0)}


def _session(item: int, state: dict[str, Any]) -> dict[str, Any]:
    price = state["sum"] / state["n"]
    end = state["last"] + GAP
    return {"item": item, "start": state["start"], "end": end, "price": price, "n": state["n"]}


def sessions(item: int, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """Rows belong together that are less than the gap apart; the rest is the timer's."""
    over = []
    for row in tuples.to_pylist():
        if state["n"] and row["seq"] - state["last"] >= GAP:
            over.append(_session(item, state))
            state = {**state, "n": 0, "sum": 0}
        start = state["start"] if state["n"] else row["seq"]
        state = {
            "start": start,
            "last": row["seq"],
            "sum": state["sum"] + row["price"],
            "n": state["n"] + 1,
        }
    return over, state, state["last"] + GAP


def silent(item: int, _time: int, state: dict[str, Any]) -> tuple[Any, ...]:
    """Nothing came for as long as the gap."""
    return [_session(item, state)], None


def fails(_item: int, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """As a function may."""
    if 96 in tuples.column("price").to_pylist():
        raise ValueError("too dear")
    return [], state


COUNTED = pa.schema([("item", pa.int64()), ("n", pa.int64())])
TOO_DEAR = 90


def counted(item: int, tuples: pa.RecordBatch, state: dict[str, Any]) -> tuple[Any, ...]:
    """How many rows an item has had, in batches in which none was too dear."""
    if max(tuples.column("price").to_pylist()) >= TOO_DEAR:
        raise ValueError("too dear")
    n = state["n"] + tuples.num_rows
    return [{"item": item, "n": n}], {"n": n}
