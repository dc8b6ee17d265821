"""Functions that queries of the tests give to their nodes, which import this module for them."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
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


# --- functions that end their process ------------------------------------------------------------


def _interrupt() -> None:
    raise KeyboardInterrupt


def _leave_in_a_thread() -> None:
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(60.0)


# Ways in which a process ends although nobody has told the node to leave.
WAYS: dict[str, Callable[[], Any]] = {
    "sys.exit(0)": lambda: sys.exit(0),
    "os._exit(0)": lambda: os._exit(0),
    "exec of a program that succeeds": lambda: os.execv("/bin/true", ["true"]),
    "os._exit(0) in a thread": _leave_in_a_thread,
    "KeyboardInterrupt": _interrupt,
    "SIGTERM to itself": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "a fault of memory": lambda: os.kill(os.getpid(), signal.SIGSEGV),
}


def leaving(way: str, mark: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """All tuples as they are; in the middle of them the process ends, but only once if `mark`."""
    times = batch.column("item_time").cast(pa.int64()).to_numpy()
    if times.size and times[-1] >= MIDDLE and not (mark and Path(mark).exists()):
        if mark:
            Path(mark).touch()
        WAYS[way]()
    return batch


# The time of some tuple near position 80,000.
MIDDLE = 1_700_000_000_000_000 + 80_000 * 10


class LeavesWhenLoaded:
    """A function with which the process that loads it ends, once."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __setstate__(self, state: dict[str, str]) -> None:
        if not Path(state["mark"]).exists():
            Path(state["mark"]).touch()
            sys.exit(0)
        self.__dict__.update(state)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch
