"""NATS JetStream as a streaming source of Spark: `format("nats")`.

    spark.dataSource.register(NatsDataSource)
    messages = spark.readStream.format("nats").options(servers=address, stream="purchases").load()

Columns: sequence (long), time (timestamp of the broker), subject (string), data (binary).

| Option | |
|---|---|
| servers | addresses of the brokers, separated by commas; required |
| stream | the JetStream stream; required |
| subject | only messages of this subject, which may have wildcards |
| begin | earliest (default), latest or a sequence; for the first batch of a query alone |
| maxRowsPerTrigger | at most so many sequences in a batch |
| partitions | tasks that read a batch side by side, each a part of the sequences; default 1 |

What always holds: an offset is the next sequence to read, so a batch is a range of sequences and is
the same each time it is read.  A stream that was deleted and made again, or that no longer has what
was not read yet, is refused.  Messages are never acknowledged: retention is the stream's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rewake.connectors.nats import (
    StreamBounds,
    read_range,
    refuse_what_is_gone,
    stream_bounds,
)
from rewake.model.errors import OutOfRange, UsageError
from rewake.model.near import did_you_mean

__all__ = ["NatsDataSource", "NatsOptions", "NatsStreamReader", "parse_options"]

_SCHEMA: Final = (
    "sequence long not null, time timestamp not null, subject string not null, data binary not null"
)
_OPTIONS: Final = (
    "servers",
    "stream",
    "subject",
    "begin",
    "maxRowsPerTrigger",
    "partitions",
)


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """What a user has asked for; `starting` is "earliest", "latest" or a sequence."""

    servers: str
    stream: str
    subject: str | None
    starting: str | int
    most_rows: int | None
    partitions: int


class NatsDataSource(DataSource):  # type: ignore[misc]
    """Registers as `nats`; streaming reads alone."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "nats"

    def schema(self) -> str:
        """The same for every stream: a message's bytes are the user's to read."""
        return _SCHEMA

    def streamReader(self, schema: Any) -> NatsStreamReader:  # noqa: N802, ARG002 (Spark's names)
        """Reader of the stream that the options name."""
        return NatsStreamReader(parse_options(self.options))


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Offsets are {"sequence": next to read, "created": when the stream was made}."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._last: int | None = None  # with availableNow: where the query is to end

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins."""
        bounds = self._bounds()
        starting = self._options.starting
        if isinstance(starting, int):
            refuse_what_is_gone(bounds, self._options.stream, starting)
            return _offset(bounds, min(starting, bounds.next))
        return _offset(bounds, bounds.first if starting == "earliest" else bounds.next)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As many rows as `maxRowsPerTrigger` says."""
        rows = self._options.most_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes."""
        bounds = self._bounds()
        self._refuse_another_stream(bounds, start)
        end = bounds.next if self._last is None else min(self._last, bounds.next)
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["sequence"] + limit.max_rows)
        return _offset(bounds, max(end, start["sequence"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What arrives from now on is for the next run."""
        self._last = self._bounds().next

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """How far the stream goes, for the lag in Spark's progress."""
        bounds = self._bounds()
        return _offset(bounds, bounds.next)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the range into equal parts."""
        first, last = start["sequence"], end["sequence"]
        if first >= last:
            return []
        bounds = self._bounds()
        self._refuse_another_stream(bounds, start)
        refuse_what_is_gone(bounds, self._options.stream, first)
        parts = min(self._options.partitions, last - first)
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        return [InputPartition(cut) for cut in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one part, in order."""
        start, end = partition.value
        options = self._options
        return read_range(options.servers, options.stream, start, end, options.subject)

    def _bounds(self) -> StreamBounds:
        return stream_bounds(self._options.servers, self._options.stream)

    def _refuse_another_stream(self, bounds: StreamBounds, start: dict[str, Any]) -> None:
        if bounds.created != start["created"]:
            raise OutOfRange(
                f"the NATS stream {self._options.stream} was made at {bounds.created}, but this "
                f"query has read one made at {start['created']}; start it with a new "
                "checkpointLocation"
            )


def _offset(bounds: StreamBounds, sequence: int) -> dict[str, Any]:
    return {"sequence": sequence, "created": bounds.created}


def parse_options(given: Mapping[str, str]) -> NatsOptions:
    """Check every option; Spark gives their names in any case."""
    known = {name.lower(): name for name in _OPTIONS}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in known:
            hint = did_you_mean(name, _OPTIONS) or f"; there are {', '.join(_OPTIONS)}"
            raise UsageError(f"format('nats') has no option {name!r}{hint}")
        values[known[name.lower()]] = value
    for name in ("servers", "stream"):
        if not values.get(name):
            raise UsageError(f"format('nats') needs the option {name!r}")
    starting = values.get("begin", "earliest")
    named = starting in ("earliest", "latest")
    rows = values.get("maxRowsPerTrigger")
    return NatsOptions(
        servers=values["servers"],
        stream=values["stream"],
        subject=values.get("subject"),
        starting=starting if named else _number("begin", starting, "earliest, latest or "),
        most_rows=None if rows is None else _number("maxRowsPerTrigger", rows),
        partitions=_number("partitions", values.get("partitions", "1")),
    )


def _number(name: str, value: str, other: str = "") -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(f"format('nats'): {name} is {value!r}; give {other}a whole number from 1")
    return int(value)
