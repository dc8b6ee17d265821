"""Orders joined with their payments on nodes: DataFrames go in, and a DataFrame comes out."""

from servers import arguments

import rewake
from rewake.spark import local_session

folder = arguments(__doc__).folder

with local_session(nodes=3) as spark:
    ids = spark.range(0, 1_000, 1, 1)
    orders = ids.selectExpr("id AS order_id", "id % 5 AS shop", "timestamp_seconds(id) AS at")
    paid = ids.where("id % 10 <> 0").selectExpr(
        "id AS order_id", "id % 97 AS euros", "timestamp_seconds(id + 5) AS at"
    )
    for name, frame in {"orders": orders, "payments": paid}.items():
        writer = frame.write.format("rewake").mode("append").options(time="at", queryId=name)
        writer.save(f"{folder}/{name}")  # with a queryId: once, however often this is run

    query = rewake.Query("paid")
    left, right = (
        query.source(name, rewake.StreamSource(f"{folder}/{name}", follow=False))
        for name in ("orders", "payments")
    )
    joined = left.join(right, on="order_id", within="1min", time="at", how="left", name="paid")
    joined.to_stream("paid")
    with rewake.start(query, f"{folder}/paid", spark) as running:  # nodes are tasks of this Spark
        running.await_end()

    results = spark.read.format("rewake").option("stream", "paid").load(f"{folder}/paid")
    results.createOrReplaceTempView("results")
    spark.sql("""
        SELECT shop, count(*) AS orders, count(euros) AS paid, sum(euros) AS euros
        FROM results GROUP BY shop ORDER BY shop
    """).show()
