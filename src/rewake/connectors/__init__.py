"""Sources and sinks: where streams begin and end outside of Rewake (CEC II: replayable input).

A source or sink is a small value: it is part of a query, has a JSON description for the query's
fingerprint, and travels to the node that opens it.  An edge package: these are the modules that
read and write files of the outside world.

What always holds: a source gives the same stream events, cut at the same positions, however often
and from wherever it is read; or it raises an error that says why it cannot.  What a sink has
committed is there exactly once, whatever died when.

Names are imported when they are first used: who reads a stream need not load the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewake.connectors.databases.database import Postgres, Sqlite
    from rewake.connectors.databases.sink import SqlSink
    from rewake.connectors.files.parts import read_parts
    from rewake.connectors.files.sink import FileSink, FileSinkWriter
    from rewake.connectors.files.source import Files
    from rewake.connectors.item_stream import ItemSource, ItemStream
    from rewake.connectors.memory import Batches
    from rewake.connectors.streams.source import StreamSource

__all__ = [
    "Batches",
    "FileSink",
    "FileSinkWriter",
    "Files",
    "ItemSource",
    "ItemStream",
    "Postgres",
    "SqlSink",
    "Sqlite",
    "StreamSource",
    "read_parts",
]

_PLACES = {
    "Batches": "memory",
    "FileSink": "files.sink",
    "FileSinkWriter": "files.sink",
    "Files": "files.source",
    "ItemSource": "item_stream",
    "ItemStream": "item_stream",
    "Postgres": "databases.database",
    "SqlSink": "databases.sink",
    "Sqlite": "databases.database",
    "StreamSource": "streams.source",
    "read_parts": "files.parts",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
