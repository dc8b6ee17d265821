"""`rewake.aggregate`: windows with eventual checkpoints inside a Structured Streaming query.

    averages = items.transform(
        rewake.aggregate(by="item_id", window=rewake.count(10), avg="price", at="/state/averages")
    )

The input is divided by key into shards; each shard's task hands its rows to the shard's owner (see
`rewake.net.shard_host`), which keeps the windows and logs every batch.  Spark keeps no state, and
its checkpoint only a pointer: the number of the batch.

What always holds: building the transform checks the columns and the settings, and writes nothing;
results are exactly once with respect to Spark's batches.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rewake.graph.checks import MAX_SHARDS
from rewake.model.errors import InvalidWindow, SchemaMismatch, UsageError
from rewake.model.names import checked_name
from rewake.net.shard_folder import ShardFolder
from rewake.node.shard_batches import GAPS
from rewake.operators.aggregate import AggregateSpec
from rewake.operators.functions import (
    AggregateFunction,
    First,
    Last,
    UserDefined,
    asked_for,
    listed,
)
from rewake.operators.session.operator import SessionSpec
from rewake.operators.session.window import SessionWindow
from rewake.operators.windows import BY_WATERMARKS, CountWindow, TimeWindow
from rewake.spark.slots import slots
from rewake.spark.structured.observe import observed
from rewake.spark.structured.task import SHARD_COLUMN, AggregateTask, task_of, with_figures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rewake.operators.windows import RunningWindow

__all__ = ["OrderMatters", "aggregate"]

Columns = str | Sequence[str]
Windows = AggregateSpec | SessionSpec


class OrderMatters(UserWarning):
    """Results depend on the order of rows, which a shuffle leaves to chance."""


def aggregate(
    *,
    by: Columns,
    window: CountWindow | TimeWindow | RunningWindow | SessionWindow,
    at: str | os.PathLike[str],
    avg: Columns = (),
    sum: Columns = (),  # noqa: A002
    min: Columns = (),  # noqa: A002
    max: Columns = (),  # noqa: A002
    first: Columns = (),
    last: Columns = (),
    stddev: Columns = (),
    count: bool | Columns = False,
    functions: Sequence[AggregateFunction] = (),
    time: str | None = None,
    slack: str | int = 0,
    timeout: str | int | None = None,
    null_keys: str = "group",
    order_by: Columns | bool | None = None,
    shards: int | None = None,
    name: str | None = None,
    listen: str = "127.0.0.1",
    gaps: str = "refuse",
) -> Callable[[DataFrame], DataFrame]:
    """Functions over windows of each key's rows, for `DataFrame.transform` of a streaming query.

    `at` is the folder of the operator's state, on storage that all executors share.  `shards` says
    how many tasks divide the keys among them: by default as many as `at` has, or as Spark can run
    at once.  `order_by` names columns by which the rows of a batch are put in order first (the
    column `time`, where there is one); `order_by=False` takes them as they come.  `listen` is the
    address under which an executor's shard host is reached, for executors on several machines.
    `gaps="allow"` is for queries in which Spark leaves out batches of which it knows that they are
    empty.  The rest is as in `Stream.aggregate`.
    """
    asked = asked_for(
        count,
        functions,
        avg=avg,
        sum=sum,
        min=min,
        max=max,
        first=first,
        last=last,
        stddev=stddev,
    )
    spec = _windows(listed(by), window, asked, time, slack, timeout, null_keys)
    place = os.path.abspath(at)
    operator_name = checked_name(name or os.path.basename(place) or "aggregate")
    _check_settings(operator_name, spec, shards, gaps)
    order = _order(spec, order_by, operator_name)

    def transform(frame: DataFrame) -> DataFrame:
        return _transformed(frame, spec, place, operator_name, order, shards, listen, gaps)

    return transform


def _windows(
    by: Sequence[str],
    window: CountWindow | TimeWindow | RunningWindow | SessionWindow,
    functions: Sequence[AggregateFunction],
    time: str | None,
    slack: str | int,
    timeout: str | int | None,
    null_keys: str,
) -> Windows:
    if slack == BY_WATERMARKS:
        raise UsageError(
            f"slack={slack!r} leaves time to Rewake's watermarks, which Spark's rows do not have: "
            "give a duration"
        )
    if not isinstance(window, SessionWindow):
        return AggregateSpec(
            by, window, functions, time=time, slack=slack, timeout=timeout, null_keys=null_keys
        )
    if time is None:
        raise InvalidWindow("sessions need an event-time column: give time='column'")
    if timeout is not None:
        raise InvalidWindow("a session has no timeout: its gap closes it")
    return SessionSpec(by, window, functions, time, slack=slack, null_keys=null_keys)


def _check_settings(name: str, spec: Windows, shards: int | None, gaps: str) -> None:
    if gaps not in GAPS:
        raise UsageError(f"{name!r}: gaps is 'refuse' or 'allow', not {gaps!r}")
    known = isinstance(shards, int) and not isinstance(shards, bool) and 1 <= shards <= MAX_SHARDS
    if shards is not None and not known:
        raise UsageError(f"{name!r}: shards is a number from 1 to {MAX_SHARDS}, not {shards!r}")
    for each in spec.aggregates:
        if isinstance(each, UserDefined):
            raise UsageError(
                f"{name!r}: {each.result_name()!r} is a function of your own, which cannot travel "
                "to the hosts of shards; use it in a Query, or compute with the built-in ones"
            )


def _order(spec: Windows, order_by: Columns | bool | None, name: str) -> tuple[str, ...]:
    """The columns by which a batch's rows are put in order."""
    if order_by is True:
        raise UsageError(f"{name!r}: order_by names columns, or is False for no order")
    if order_by is False:
        return ()
    if order_by is not None:
        return listed(order_by)
    if spec.time is not None:
        return (spec.time,)
    by_arrival = [each for each in spec.aggregates if isinstance(each, First | Last)]
    if isinstance(spec.window, CountWindow) or by_arrival:
        what = "count windows" if isinstance(spec.window, CountWindow) else "first and last"
        warnings.warn(
            f"{name!r}: results of {what} depend on the order of rows, and Spark's shuffle gives "
            "them in any: name the columns that order them with order_by=..., or say "
            "order_by=False if any order will do",
            OrderMatters,
            stacklevel=4,
        )
    return ()


def _transformed(
    frame: DataFrame,
    spec: Windows,
    at: str,
    name: str,
    order_by: tuple[str, ...],
    shards: int | None,
    listen: str,
    gaps: str,
) -> DataFrame:
    from pyspark.sql import functions  # noqa: PLC0415 (optional, slow to import)

    if not frame.isStreaming:
        raise UsageError(
            f"{name!r}: rewake.aggregate keeps state from batch to batch, so it needs a streaming "
            "DataFrame (spark.readStream); over a finite one, use groupBy or a window function"
        )
    schema = _columns(frame, spec, order_by, name)
    results = _results_schema(name, spec, schema)
    folder = ShardFolder(at)
    count = shards or _default_shards(frame.sparkSession, folder)
    described = spec.describe()
    if spec.kind != AggregateSpec.kind:
        described["kind"] = spec.kind
    read = {*spec.by, *(each.column for each in spec.aggregates), spec.time}
    columns = [[each.name, str(each.type)] for each in schema if each.name in read]
    folder.check_operator({"operator": described, "columns": columns, "shards": count})
    task = AggregateTask(
        at=at,
        shards=count,
        operator=described,
        columns=schema.serialize().to_pybytes(),
        results=results.serialize().to_pybytes(),
        order_by=order_by,
        gaps=gaps,
        listen=listen,
    )
    keys = [functions.col(_quoted(each)) for each in spec.by]
    rows = frame.select(*(functions.col(_quoted(each)) for each in schema.names))
    shard = functions.spark_partition_id().alias(SHARD_COLUMN)
    divided = rows.repartition(count, *keys).select("*", shard)
    wide = divided.mapInArrow(task_of(task), _spark_schema(with_figures(results)))
    return observed(wide, name)


def _results_schema(name: str, spec: Windows, schema: pa.Schema) -> pa.Schema:
    """The columns of results; the operator is built here to check the spec."""
    try:
        return spec.operator(schema).output_schema
    except UsageError as error:
        raise type(error)(f"{name!r}: {error}") from error


def _columns(frame: DataFrame, spec: Windows, order_by: tuple[str, ...], name: str) -> pa.Schema:
    """The columns that matter, as Arrow has them; times are in UTC whatever the session's zone."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 (optional, slow to import)
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415

    wanted = [*spec.by, *(each.column for each in spec.aggregates), spec.time, *order_by]
    known = {each.name: each for each in frame.schema.fields}
    fields = []
    for column in dict.fromkeys(each for each in wanted if each):
        if column not in known:
            have = ", ".join(known) or "none"
            raise SchemaMismatch(f"{name!r}: there is no column {column!r}; there are {have}")
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
    return _bounded(slots(session) or partitions)


def _bounded(shards: int) -> int:
    return 1 if shards < 1 else MAX_SHARDS if shards > MAX_SHARDS else shards


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (optional, slow)

    return from_arrow_schema(schema)


def _quoted(column: str) -> str:
    escaped = column.replace("`", "``")
    return f"`{escaped}`"
