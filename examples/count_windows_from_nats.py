"""The average price of every ten purchases of an item, from a NATS JetStream broker."""

import asyncio

import nats
from pyspark.sql.functions import col, from_json
from servers import arguments, nats_server

import rewake
from rewake.spark import local_session
from rewake.spark.sources.nats import NatsDataSource

given = arguments(__doc__, nats="address of a broker (default: start one)")
folder = given.folder


async def publish(address: str) -> None:
    async with await nats.connect(address) as client:
        await client.jetstream().add_stream(name="purchases", subjects=["purchases"])
        for number in range(700):
            purchase = f'{{"item": {number % 7}, "price": {number}}}'
            await client.jetstream().publish("purchases", purchase.encode())


with nats_server(given.nats) as address, local_session() as spark:
    asyncio.run(publish(address))
    spark.dataSource.register(NatsDataSource)
    messages = spark.readStream.format("nats").options(servers=address, stream="purchases").load()
    fields = from_json(col("data").cast("string"), "item int, price double").alias("fields")
    purchases = messages.select("sequence", fields).select("sequence", "fields.*")
    ten = rewake.count_window(10)
    every_ten = rewake.aggregate(
        by="item", window=ten, avg="price", at=f"{folder}/state", order_by="sequence"
    )
    averages = purchases.transform(every_ten).writeStream.trigger(availableNow=True)
    averages = averages.option("checkpointLocation", f"{folder}/checkpoint")
    averages.start(f"{folder}/averages", "parquet").awaitTermination()
    spark.read.parquet(f"{folder}/averages").orderBy("item", "avg_price").show(5)
