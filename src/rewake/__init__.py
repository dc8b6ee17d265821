"""Rewake: stateful stream processing that survives failures at a price the user chooses.

    query = rewake.Query("average-price")
    items = query.source("items", rewake.Files("purchases/*.parquet"))
    averages = items.aggregate(by="item_id", window=rewake.count_window(10), avg="item_price")
    averages.to_stream("averages")
    with rewake.start(query, "state/average-price") as running:
        running.await_end()

Names are imported when they are first used, so that `import rewake` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_PLACES = {
    "Query": "rewake.graph",
    "aggregate": "rewake.spark.structured.aggregate",
    "OrderMatters": "rewake.spark.structured.hosting",
    "process": "rewake.spark.structured.process",
    "progress": "rewake.spark.structured.observe",
    "running": "rewake.operators.windows",
    "count_window": "rewake.operators.windows",
    "time_window": "rewake.operators.windows",
    "Count": "rewake.operators.functions",
    "Sum": "rewake.operators.functions",
    "Avg": "rewake.operators.functions",
    "Min": "rewake.operators.functions",
    "Max": "rewake.operators.functions",
    "First": "rewake.operators.functions",
    "Last": "rewake.operators.functions",
    "Stddev": "rewake.operators.functions",
    "UserDefined": "rewake.operators.functions",
    "session": "rewake.operators.session.window",
    "KeyedResult": "rewake.operators.keyed.vocabulary",
    "KeyedTuples": "rewake.operators.keyed.vocabulary",
    "approach_named": "rewake.recovery.approach",
    "Batches": "rewake.connectors.memory",
    "Files": "rewake.connectors.files",
    "FileSink": "rewake.connectors.file_sink",
    "ItemSource": "rewake.connectors.item_stream",
    "ItemStream": "rewake.connectors.item_stream",
    "Postgres": "rewake.connectors.databases",
    "SqlSink": "rewake.connectors.sql_sink",
    "Sqlite": "rewake.connectors.databases",
    "StreamSource": "rewake.connectors.log_stream",
    "read_parts": "rewake.connectors.parts",
    "start": "rewake.spark.start",
    "start_processes": "rewake.net.running",
    "subscribe": "rewake.net.client",
    "produce": "rewake.net.producer",
    "RewakeError": "rewake.model.errors",
}

# Names that are called differently where they are.
_ALIASES = {"count": "count_window"}
_PLACES["count"] = _PLACES["count_window"]

__all__ = ["__version__", *_PLACES]  # noqa: PLE0604 (they are strings)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rewake' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
