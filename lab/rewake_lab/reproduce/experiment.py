"""What an experiment of a paper is: how it is run, and what its rows say beside the paper.

What always holds: running yields rows and nothing else; findings, plots and the verdict are
functions of the rows alone, so that they can be made again from what was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rewake.model.errors import UsageError

Value = str | int | float | bool
Row = dict[str, Value]
Paper = Literal["cec", "thesis"]
ScaleName = Literal["small", "full"]

SCALES: tuple[ScaleName, ...] = ("small", "full")
PAPERS: dict[Paper, str] = {
    "cec": "CEC: Continuous Eventual Checkpointing for data stream processing operators",
    "thesis": "The thesis: persistence and fault-tolerance of data streams",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and at what size an experiment runs; `folder` is its own, and empty."""

    folder: Path
    scale: ScaleName = "small"
    seed: int = 1

    @property
    def full(self) -> bool:
        """Whether it runs at the paper's size as far as one machine allows."""
        return self.scale == "full"


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of ours beside the paper's; `paper` is as the paper words it, or empty."""

    what: str
    ours: float
    unit: str
    paper: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart as the paper has it: which columns of which rows go where."""

    title: str
    data: pa.Table
    x: str
    y: str
    x_title: str
    y_title: str
    kind: Literal["bar", "line", "point"] = "line"
    series: str | None = None
    y_scale: Literal["linear", "log"] = "linear"
    x_scale: Literal["linear", "log"] = "linear"
    # Moments on the x axis, with words.
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure or table of a paper."""

    rows: Callable[[Setting], Iterator[Row]]
    scaling: Callable[[Setting], str]
    findings: Callable[[pa.Table], list[Finding]]
    plots: Callable[[pa.Table], list[Plot]]
    # A sentence or two: what agrees with the paper, what differs, and why.
    verdict: Callable[[pa.Table], str]


class OtherRows(UsageError):
    """Rows were kept by another version of the experiment than the one that is to show them."""


def where(table: pa.Table, **values: Value) -> pa.Table:
    """The rows whose columns have these values; there must be some."""
    for column, value in values.items():
        if column not in table.column_names:
            raise OtherRows(f"the raw data has no column {column!r}: run the experiment again")
        table = table.filter(pc.equal(table[column], pa.scalar(value)))
    if not table.num_rows:
        raise OtherRows(f"the raw data has no row with {values}: run the experiment again")
    return table


def middle(table: pa.Table, column: str, **values: Value) -> float:
    """One number: the median of the column over the rows with these values."""
    return float(np.median(where(table, **values)[column].to_numpy()))


def mean(table: pa.Table, column: str, **values: Value) -> float:
    """One number: the average of the column over the rows with these values."""
    return float(np.mean(where(table, **values)[column].to_numpy()))


def several(table: pa.Table, column: str) -> list[Value]:
    """The different values of a column, in the order in which they were measured."""
    values: list[Value] = table[column].unique().to_pylist()
    return values
