"""Rewake: stateful stream processing that survives failures at a price the user chooses.

    query = rewake.Query("average-price")
    items = query.source("items", rewake.Files("purchases/*.parquet"))
    averages = items.aggregate(by="item_id", window=rewake.count_window(10), avg="item_price")
    averages.to_stream("averages")
    with rewake.start(query, "state/average-price") as running:
        running.await_end()

Names are imported when they are first used, so that `import rewake` costs nothing; editors and type
checkers see where each comes from.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewake.connectors.databases.database import Postgres, Sqlite
    from rewake.connectors.databases.sink import SqlSink
    from rewake.connectors.files.parts import read_parts
    from rewake.connectors.files.sink import FileSink
    from rewake.connectors.files.source import Files
    from rewake.connectors.item_stream import ItemSource, ItemStream
    from rewake.connectors.memory import Batches
    from rewake.connectors.streams.source import StreamSource
    from rewake.graph import Query
    from rewake.model.errors import RewakeError
    from rewake.net.clients.client import subscribe
    from rewake.net.clients.producer import produce
    from rewake.net.queries.running import start_processes
    from rewake.operators.aggregate.functions import (
        Avg,
        Count,
        First,
        Last,
        Max,
        Min,
        Stddev,
        Sum,
        UserDefined,
    )
    from rewake.operators.keyed.vocabulary import KeyedResult, KeyedTuples
    from rewake.operators.windows.specs import (
        count_window,
        running_window,
        session_window,
        time_window,
    )
    from rewake.recovery.amnesia import Amnesia
    from rewake.recovery.eventual.approach import ContinuousEventual
    from rewake.recovery.instant.approach import Instant
    from rewake.recovery.policies.cost_benefit import CostBenefit
    from rewake.recovery.policies.recover_within import RecoverWithin
    from rewake.recovery.policies.shots import Shots
    from rewake.recovery.policies.targets import Targets
    from rewake.recovery.standby.active import ActiveStandby
    from rewake.recovery.standby.passive import PassiveStandby
    from rewake.recovery.upstream_backup import UpstreamBackup
    from rewake.spark.start import start
    from rewake.spark.structured.aggregate import aggregate
    from rewake.spark.structured.hosting import OrderMatters
    from rewake.spark.structured.observe import progress
    from rewake.spark.structured.process import process

__version__ = "0.1.0.dev0"

__all__ = [
    "ActiveStandby",
    "Amnesia",
    "Avg",
    "Batches",
    "ContinuousEventual",
    "CostBenefit",
    "Count",
    "FileSink",
    "Files",
    "First",
    "Instant",
    "ItemSource",
    "ItemStream",
    "KeyedResult",
    "KeyedTuples",
    "Last",
    "Max",
    "Min",
    "OrderMatters",
    "PassiveStandby",
    "Postgres",
    "Query",
    "RecoverWithin",
    "RewakeError",
    "Shots",
    "SqlSink",
    "Sqlite",
    "Stddev",
    "StreamSource",
    "Sum",
    "Targets",
    "UpstreamBackup",
    "UserDefined",
    "__version__",
    "aggregate",
    "count_window",
    "process",
    "produce",
    "progress",
    "read_parts",
    "running_window",
    "session_window",
    "start",
    "start_processes",
    "subscribe",
    "time_window",
]

# Where each name is; without the package's own name, which all of them begin with.
_PLACES = {
    "ActiveStandby": "recovery.standby.active",
    "Amnesia": "recovery.amnesia",
    "Avg": "operators.aggregate.functions",
    "Batches": "connectors.memory",
    "ContinuousEventual": "recovery.eventual.approach",
    "CostBenefit": "recovery.policies.cost_benefit",
    "Count": "operators.aggregate.functions",
    "FileSink": "connectors.files.sink",
    "Files": "connectors.files.source",
    "First": "operators.aggregate.functions",
    "Instant": "recovery.instant.approach",
    "ItemSource": "connectors.item_stream",
    "ItemStream": "connectors.item_stream",
    "KeyedResult": "operators.keyed.vocabulary",
    "KeyedTuples": "operators.keyed.vocabulary",
    "Last": "operators.aggregate.functions",
    "Max": "operators.aggregate.functions",
    "Min": "operators.aggregate.functions",
    "OrderMatters": "spark.structured.hosting",
    "PassiveStandby": "recovery.standby.passive",
    "Postgres": "connectors.databases.database",
    "Query": "graph",
    "RecoverWithin": "recovery.policies.recover_within",
    "RewakeError": "model.errors",
    "Shots": "recovery.policies.shots",
    "SqlSink": "connectors.databases.sink",
    "Sqlite": "connectors.databases.database",
    "Stddev": "operators.aggregate.functions",
    "StreamSource": "connectors.streams.source",
    "Sum": "operators.aggregate.functions",
    "Targets": "recovery.policies.targets",
    "UpstreamBackup": "recovery.upstream_backup",
    "UserDefined": "operators.aggregate.functions",
    "aggregate": "spark.structured.aggregate",
    "count_window": "operators.windows.specs",
    "process": "spark.structured.process",
    "produce": "net.clients.producer",
    "progress": "spark.structured.observe",
    "read_parts": "connectors.files.parts",
    "running_window": "operators.windows.specs",
    "session_window": "operators.windows.specs",
    "start": "spark.start",
    "start_processes": "net.queries.running",
    "subscribe": "net.clients.client",
    "time_window": "operators.windows.specs",
}

# A type checker would take any name that this function is there for.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'rewake' has no attribute {name!r}")
        return getattr(import_module(f"rewake.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
