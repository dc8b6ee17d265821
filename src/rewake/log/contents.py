"""What a log of an operator says of itself: the metadata of its descriptor, written and read here.

    schema, schema-<n>    the columns of output 0 and of output n, Arrow IPC
    watermarks            the outputs whose time is told by punctuations: "0,2"
    time                  the column of the schema that gives the frames their time
    times                 the type of the frames' times, where no column has it, Arrow IPC
    operator              what made the log, as JSON
    rows                  the columns that this operator was given, Arrow IPC
    state                 the columns of what it keeps for a key, where it is typed, Arrow IPC
    query                 the fingerprint of the query whose node wrote it
    at, shard, shards     its place in a folder of shards: whose, which, and of how many

What always holds: what a log does not say is None, and what it says in bytes that cannot be read is
`DamagedLog`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from rewake.log.files.descriptor import Descriptor
from rewake.model.errors import DamagedLog

__all__ = ["Contents", "metadata_of", "place_metadata"]

_Value = TypeVar("_Value")


def metadata_of(
    outputs: Sequence[pa.Schema],
    *,
    operator: Mapping[str, Any] | None = None,
    rows: pa.Schema | None = None,
    state: pa.Schema | None = None,
    watermarks: Sequence[int] = (),
    time: str | None = None,
    times: pa.DataType | None = None,
    query: str | None = None,
) -> dict[str, str | bytes]:
    """The metadata of a log with these contents."""
    schemas = {_output_name(number): each for number, each in enumerate(outputs)}
    schemas |= {"rows": rows, "state": state}
    schemas["times"] = None if times is None else pa.schema([("time", times)])
    texts = {
        "operator": None if operator is None else json.dumps(operator),
        "watermarks": ",".join(map(str, watermarks)) or None,
        "time": time,
        "query": query,
    }
    said: dict[str, str | bytes] = {
        name: each.serialize().to_pybytes() for name, each in schemas.items() if each is not None
    }
    return said | {name: each for name, each in texts.items() if each is not None}


def place_metadata(at: str, shard: int, shards: int) -> dict[str, str]:
    """What a log says of its place in a folder of shards, whose id is `at`."""
    return {"at": at, "shard": str(shard), "shards": str(shards)}


@dataclass(frozen=True, slots=True)
class Contents:
    """What one log says."""

    descriptor: Descriptor

    def schema(self, output: int = 0) -> pa.Schema | None:
        """The columns of an output."""
        return self._schema(_output_name(output))

    def carries_watermarks(self, output: int) -> bool:
        """Whether the time of an output is told by punctuations."""
        return str(output) in (self._text("watermarks") or "").split(",")

    @property
    def time(self) -> str | None:
        """The column that gives the frames their time."""
        return self._text("time")

    @property
    def times(self) -> pa.DataType | None:
        """The type of the frames' times, where it is said by itself."""
        schema = self._schema("times")
        return None if schema is None else self._read("times", lambda: schema.field(0).type)

    @property
    def operator(self) -> dict[str, Any] | None:
        """What made the log, as JSON values."""
        stored = self._text("operator")
        if stored is None:
            return None
        described = self._read("operator", lambda: json.loads(stored))
        if not isinstance(described, dict):
            raise self._damaged("operator", "no object")
        return described

    @property
    def rows(self) -> pa.Schema | None:
        """The columns that the operator was given."""
        return self._schema("rows")

    @property
    def state(self) -> pa.Schema | None:
        """The columns of what the operator keeps for a key."""
        return self._schema("state")

    @property
    def query(self) -> str | None:
        """The fingerprint of the query whose node wrote it."""
        return self._text("query")

    @property
    def place(self) -> dict[str, str | None]:
        """Its place in a folder of shards, as `place_metadata` gives it."""
        return {name: self._text(name) for name in ("at", "shard", "shards")}

    def _text(self, name: str) -> str | None:
        stored = self.descriptor.metadata.get(name)
        return stored if isinstance(stored, str) else None

    def _schema(self, name: str) -> pa.Schema | None:
        stored = self.descriptor.metadata.get(name)
        if not isinstance(stored, bytes):
            return None
        return self._read(name, lambda: pa.ipc.read_schema(pa.py_buffer(stored)))

    def _read(self, name: str, read: Callable[[], _Value]) -> _Value:
        try:
            return read()
        except (
            pa.ArrowException, OSError, EOFError, ValueError, TypeError, IndexError, RecursionError,
        ) as error:  # fmt: skip
            raise self._damaged(name, str(error)) from error

    def _damaged(self, name: str, reason: str) -> DamagedLog:
        return DamagedLog(
            f"the metadata {name!r} of log {self.descriptor.name!r} cannot be read ({reason}); "
            "restore the file LOG of its folder from a copy"
        )


def _output_name(output: int) -> str:
    return "schema" if output == 0 else f"schema-{output}"
