"""Ad-hoc SQL about the last hour of a stream, while it is being written."""

from datetime import UTC, datetime, timedelta

from servers import arguments

from rewake.spark import local_session

folder = arguments(__doc__).folder
now = datetime.now(UTC)

with local_session() as spark:
    # A clock in quick motion: each batch is half an hour, and the first was three hours ago.
    clock = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=5_000,
        advanceMillisPerBatch=30 * 60_000,
        startTimestamp=int((now - timedelta(hours=3)).timestamp() * 1000),
    )
    purchases = clock.load().selectExpr("timestamp", "value % 5 AS item", "value % 97 AS price")
    writer = purchases.writeStream.format("rewake").option("time", "timestamp")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writing = writer.start(f"{folder}/purchases")
    while not writing.lastProgress or writing.lastProgress["batchId"] < 6:  # until now
        writing.awaitTermination(0.1)

    hour = {"begin": (now - timedelta(hours=1)).isoformat(), "end": now.isoformat()}
    history = spark.read.format("rewake").options(**hour).load(f"{folder}/purchases")
    history.createOrReplaceTempView("last_hour")
    spark.sql("""
        SELECT item, count(*) AS purchases, max(price) AS highest,
               date_format(min(timestamp), 'HH:mm') AS since
        FROM last_hour GROUP BY item ORDER BY item
    """).show()
    writing.stop()
