"""Figures of every shard in Spark's own progress, without a second channel.

Each task's last row has figures and no results.  Spark's `observe` collects the figures into the
query's progress, and a filter removes the rows, so that nobody downstream sees them.

What always holds: figures in a progress are those of that batch; a shard that Spark ran twice
counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rewake.spark.structured.task import FIGURES, FIGURES_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["OBSERVED", "figures_of", "observed", "progress"]

# Before an operator's name, in the names of Spark's observations.
OBSERVED: Final = "rewake:"


def observed(results: DataFrame, name: str) -> DataFrame:
    """The results alone; the figures among them go into the query's progress."""
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    figures = functions.col(FIGURES_COLUMN)
    collected = functions.collect_list(functions.from_json(figures, FIGURES)).alias("shards")
    return (
        results.observe(f"{OBSERVED}{name}", collected)
        .filter(figures.isNull())
        .drop(FIGURES_COLUMN)
    )


def progress(query: StreamingQuery) -> dict[str, dict[int, dict[str, Any]]]:
    """Of each operator, the figures of each shard in the query's last progress."""
    last = query.lastProgress
    return {} if last is None else figures_of(last["observedMetrics"])


def figures_of(metrics: Any) -> dict[str, dict[int, dict[str, Any]]]:
    """Of each operator, the figures of each shard, from the observations of a progress."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name, row in dict(metrics or {}).items():
        if not name.startswith(OBSERVED):
            continue
        values = row.asDict(recursive=True) if hasattr(row, "asDict") else dict(row)
        shards = values.get("shards") or []
        found[name.removeprefix(OBSERVED)] = {int(each["shard"]): dict(each) for each in shards}
    return found
