"""Stateful operators inside Structured Streaming: what `aggregate` and `process` have in common.

The input is divided by key into shards; each shard's task hands its rows to the shard's owner (see
`net.shards.host`), which keeps the state and logs every batch.  Spark keeps no state, and its
checkpoint only a pointer: the number of the batch.

What always holds: building a transform checks the columns and the settings, and changes no state;
results are exactly once with respect to Spark's batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rewake.graph.checks import MAX_SHARDS
from rewake.graph.promised import RECOVER_WITHIN
from rewake.graph.times import order_columns
from rewake.model.errors import SchemaMismatch, UsageError
from rewake.model.names import checked_name
from rewake.model.near import did_you_mean
from rewake.net.shards.delivered import delivered_schema
from rewake.net.shards.folder import ShardFolder
from rewake.node.micro_batches.shard_batches import GAPS
from rewake.operators.stateful import KeyedOperator, StatefulSpec
from rewake.recovery.policies.recover_within import within_ms
from rewake.spark.slots import slots
from rewake.spark.structured.divide import Divider, in_blocks
from rewake.spark.structured.observe import observed
from rewake.spark.structured.task import ShardTask, with_figures
from rewake.spark.structured.waking import wake_from_driver
from rewake.spark.structured.worker import entry_of
from rewake.stores.places import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Columns", "Hosting", "OrderMatters", "named", "order_of"]

Columns = str | Sequence[str]
# In the metadata of a column: what `withWatermark` has declared.
_SPARK_WATERMARK: Final = "spark.watermarkDelayMs"


class OrderMatters(UserWarning):
    """Results depend on the order of rows, which a shuffle leaves to chance."""


def named(name: str | None, at: str | os.PathLike[str], default: str) -> str:
    """What the operator is called: by default as its folder."""
    return checked_name(name or os.path.basename(os.path.abspath(local_path(at))) or default)


def order_of(order_by: Columns | bool, name: str) -> tuple[str, ...]:
    """The columns by which a batch's rows are put in order, as a user said it."""
    if order_by is True:
        raise UsageError(f"{name!r}: order_by names columns, or is False for no order")
    if order_by is False:
        return ()
    return (order_by,) if isinstance(order_by, str) else tuple(order_by)


@dataclass(frozen=True, slots=True)
class Hosting:
    """An operator in micro-batches: what it computes, where its state is, and the settings.

    `described` is the spec as JSON values; `reads` are the input columns that it reads, None for
    all of them.
    """

    spec: StatefulSpec
    described: dict[str, Any]
    reads: tuple[str, ...] | None
    at: str
    name: str
    order_by: tuple[str, ...]
    shards: int | None
    listen: str
    gaps: str
    # Whether the slack is the user's choice; else it is that of Spark's watermark, if there is one.
    slack_said: bool = True
    # Rows whose key is null are left out before the operator, as a filter of the user's would.
    drop_null_keys: bool = False
    # How long a crash may cost a shard beyond the restart of its host.
    recover_within: str | None = RECOVER_WITHIN

    def __post_init__(self) -> None:
        if os.path.exists(self.at) and not os.path.isdir(self.at):
            raise UsageError(
                f"{self.name!r}: at={self.at!r} is a file; give the folder of the operator's "
                "state, which need not be there yet"
            )
        self._recover_within_ms()
        if self.gaps not in GAPS:
            raise UsageError(f"{self.name!r}: gaps is 'refuse' or 'allow', not {self.gaps!r}")
        shards = self.shards
        known = isinstance(shards, int) and not isinstance(shards, bool)
        if shards is not None and not (known and 1 <= shards <= MAX_SHARDS):
            raise UsageError(
                f"{self.name!r}: shards is a number from 1 to {MAX_SHARDS}, not {shards!r}"
            )

    def _recover_within_ms(self) -> float | None:
        if self.recover_within is None:
            return None
        try:
            return within_ms(self.recover_within)
        except UsageError as error:
            raise UsageError(f"{self.name!r}: {error}") from error

    def transform(self) -> Callable[[DataFrame], DataFrame]:
        """The function for `DataFrame.transform`."""
        return self._transformed

    def _transformed(self, frame: DataFrame) -> DataFrame:
        return self._by_watermark(frame)._hosted(frame)

    def _by_watermark(self, frame: DataFrame) -> Hosting:
        """With the slack that `withWatermark` has declared for the time column."""
        known = {each.name: each.metadata for each in frame.schema.fields}
        (time,) = order_columns(self.spec) or (None,)
        delay_ms = known.get(time, {}).get(_SPARK_WATERMARK)
        if self.slack_said or not delay_ms:
            return self
        slack = f"{int(delay_ms)}ms"
        spec = replace(self.spec, slack=slack)  # type: ignore[type-var]
        return replace(self, spec=spec, described=self.described | {"slack": slack})

    def _hosted(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

        if not frame.isStreaming:
            raise UsageError(
                f"{self.name!r}: rewake.{self.spec.kind} keeps state from batch to batch, so it "
                "needs a streaming DataFrame (spark.readStream); over a finite one, use groupBy or "
                "a window function"
            )
        keys = self.spec.keys(0)
        schema = self._columns(frame)
        results = self._results_schema(schema)
        task = self._task(frame, schema, results)
        # Files with a function of the user's may be given to Spark after this.
        if not self.spec.code():
            wake_from_driver(frame.sparkSession, task.at, task.listen)
        rows = frame.select(*(functions.col(_quoted(each)) for each in schema.names))
        by = [functions.col(_quoted(each)) for each in keys]
        for key in by if self.drop_null_keys else ():
            rows = rows.filter(key.isNotNull())
        blocks = in_blocks(rows, by, Divider(task.columns, task.shards, task.at, task.listen))
        wide = blocks.mapInArrow(entry_of(task), _spark_schema(with_figures(results)))
        return observed(wide, self.name)

    def _task(self, frame: DataFrame, schema: pa.Schema, results: pa.Schema) -> ShardTask:
        folder = ShardFolder(self.at)
        count = self.shards or _default_shards(frame.sparkSession, folder)
        read = schema.names if self.reads is None else self.reads
        columns = [[each.name, str(each.type)] for each in schema if each.name in read]
        folder.check_operator({"operator": self.described, "columns": columns, "shards": count})
        return ShardTask(
            at=self.at,
            shards=count,
            operator=self.described,
            columns=schema.serialize().to_pybytes(),
            results=results.serialize().to_pybytes(),
            order_by=self.order_by,
            gaps=self.gaps,
            listen=self.listen,
            recover_within_ms=self._recover_within_ms(),
        )

    def _results_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of results; the operator is built here to check the spec."""
        try:
            operator: KeyedOperator = self.spec.operator(schema)  # type: ignore[assignment]
            return delivered_schema(operator)
        except UsageError as error:
            raise type(error)(f"{self.name!r}: {error}") from error

    def _columns(self, frame: DataFrame) -> pa.Schema:
        """The columns that matter, as Arrow has them; times are in UTC whatever the session has."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 (optional, slow to import)
        from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

        name = self.name
        wanted = [*(frame.columns if self.reads is None else self.reads), *self.order_by]
        known = {each.name: each for each in frame.schema.fields}
        fields = []
        for column in dict.fromkeys(wanted):
            if column not in known:
                hint = did_you_mean(column, known) or ";"
                have = ", ".join(known) or "none"
                raise SchemaMismatch(
                    f"{name!r}: there is no column {column!r}{hint} there are {have}"
                )
            if frame.columns.count(column) > 1:
                raise SchemaMismatch(f"{name!r}: two columns are named {column!r}; rename one")
            try:
                kind = to_arrow_type(known[column].dataType, timezone="UTC")
            except PySparkException as error:
                raise SchemaMismatch(f"{name!r}: column {column!r}: {error}") from error
            fields.append(pa.field(column, kind))
        return pa.schema(fields)


def _default_shards(session: SparkSession, folder: ShardFolder) -> int:
    stored = folder.operator()
    if stored is not None:
        return int(stored["shards"])
    partitions = int(str(session.conf.get("spark.sql.shuffle.partitions", "200")))
    return min(max(slots(session) or partitions, 1), MAX_SHARDS)


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (optional, slow)

    return from_arrow_schema(schema)


def _quoted(column: str) -> str:
    escaped = column.replace("`", "``")
    return f"`{escaped}`"
