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
    "running": "rewake.operators.windows.specs",
    "count_window": "rewake.operators.windows.specs",
    "time_window": "rewake.operators.windows.specs",
    "Count": "rewake.operators.aggregate.functions",
    "Sum": "rewake.operators.aggregate.functions",
    "Avg": "rewake.operators.aggregate.functions",
    "Min": "rewake.operators.aggregate.functions",
    "Max": "rewake.operators.aggregate.functions",
    "First": "rewake.operators.aggregate.functions",
    "Last": "rewake.operators.aggregate.functions",
    "Stddev": "rewake.operators.aggregate.functions",
    "UserDefined": "rewake.operators.aggregate.functions",
    "session": "rewake.operators.session.window",
    "KeyedResult": "rewake.operators.keyed.vocabulary",
    "KeyedTuples": "rewake.operators.keyed.vocabulary",
    "approach_named": "rewake.recovery.approach",
    "Batches": "rewake.connectors.memory",
    "Files": "rewake.connectors.files.source",
    "FileSink": "rewake.connectors.files.sink",
    "ItemSource": "rewake.connectors.item_stream",
    "ItemStream": "rewake.connectors.item_stream",
    "Postgres": "rewake.connectors.databases.database",
    "SqlSink": "rewake.connectors.databases.sink",
    "Sqlite": "rewake.connectors.databases.database",
    "StreamSource": "rewake.connectors.streams.source",
    "read_parts": "rewake.connectors.files.parts",
    "start": "rewake.spark.start",
    "start_processes": "rewake.net.queries.running",
    "subscribe": "rewake.net.clients.client",
    "produce": "rewake.net.clients.producer",
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
