"""Results into a Delta table, each exactly once: the commit carries the number of the batch."""

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame
from servers import arguments

import rewake
from rewake.spark import local_session

folder = arguments(__doc__).folder


def write_once(batch: DataFrame, number: int) -> None:
    rows = batch.toArrow()
    table = DeltaTable.create(f"{folder}/averages", rows.schema, mode="ignore")
    written = table.transaction_version("averages")
    if written is None or written < number:  # else Spark repeats a batch that it did not note
        commit = CommitProperties(app_transactions=[Transaction("averages", number)])
        write_deltalake(table, rows, mode="append", commit_properties=commit)


with local_session() as spark:
    purchases = spark.range(4_000).selectExpr("id", "id % 40 AS item", "id / 100 AS price")
    purchases.write.format("rewake").mode("append").save(f"{folder}/purchases")
    stream = spark.readStream.format("rewake").option("maxRowsPerTrigger", 2_500)
    every_ten = rewake.aggregate(
        by="item", window=rewake.count_window(10), avg="price", at=f"{folder}/state", order_by="id"
    )
    averages = stream.load(f"{folder}/purchases").transform(every_ten).writeStream
    averages = averages.foreachBatch(write_once).trigger(availableNow=True)
    averages.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    table = DeltaTable(f"{folder}/averages")
    print(table.to_pandas().groupby("item")["avg_price"].agg(["count", "mean"]).head())
