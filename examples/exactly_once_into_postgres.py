"""Results into PostgreSQL, each exactly once: a batch and its number are one transaction."""

import psycopg
from pyspark.sql import DataFrame
from servers import arguments, postgres_server

import rewake
from rewake.spark import local_session

given = arguments(__doc__, postgres="address of a database (default: start one)")
folder = given.folder


def write_once(batch: DataFrame, number: int) -> None:
    with psycopg.connect(address) as database, database.cursor() as cursor:  # one transaction
        cursor.execute("CREATE TABLE IF NOT EXISTS batches (number bigint PRIMARY KEY)")
        cursor.execute("CREATE TABLE IF NOT EXISTS averages (item bigint, price float8)")
        cursor.execute("INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING", [number])
        if cursor.rowcount:  # else Spark repeats a batch that it did not note
            cursor.executemany("INSERT INTO averages VALUES (%s, %s)", batch.collect())


with postgres_server(given.postgres) as address, local_session() as spark:
    purchases = spark.range(0, 4_000, 1, 2).selectExpr(
        "id", "id % 40 AS item", "double(id) AS price"
    )
    purchases.write.mode("ignore").parquet(f"{folder}/purchases")
    files = spark.readStream.schema(purchases.schema).option("maxFilesPerTrigger", 1)
    every_ten = rewake.aggregate(
        by="item", window=rewake.count_window(10), avg="price", at=f"{folder}/state", order_by="id"
    )
    averages = files.parquet(f"{folder}/purchases").transform(every_ten).writeStream
    averages = averages.foreachBatch(write_once).trigger(availableNow=True)
    averages.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    with psycopg.connect(address) as database:
        counted = "SELECT item, count(*), avg(price) FROM averages GROUP BY item ORDER BY item"
        rows = database.execute(counted).fetchmany(5)
    spark.createDataFrame(rows, "item long, averages long, price double").show()
