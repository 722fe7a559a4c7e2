"""Count delayed flights by hour with a streaming query, stop it in the middle, start it again, and check the answer.

Flights of 2013 go into a topic, each with the time of its departure. A streaming query counts late flights by windows
of an hour with a watermark, into Parquet files. It is stopped after a few batches and restarted from its checkpoint. In
the end the files must equal the result of a batch over the whole topic. Needs triokafka[demo] and a broker.

python examples/spark_windows.py localhost:9092 departures 40000
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from typing import Any

import trio

import triokafka
import triokafka.spark
from triokafka.cli.demo.flights import flights

PARTITIONS = 3
BATCHES = 6
END_MS = 1_400_000_000_000  # months after the last flight


async def send(bootstrap_servers: str, topic: str, most: int) -> None:
    """Send flights to the topic by time of departure, and last a record that ends the windows of all before it."""
    chosen = sorted(itertools.islice(flights(), most), key=lambda flight: flight.timestamp_ms)
    async with triokafka.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        # The records are old: retention would delete them.
        await admin.create_topics([triokafka.NewTopic(topic, PARTITIONS, 1, configs={"retention.ms": "-1"})])
    async with triokafka.Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        for place, flight in enumerate(chosen):
            await producer.send(topic, flight.value, partition=place % PARTITIONS, timestamp_ms=flight.timestamp_ms)
        for partition in range(PARTITIONS):
            await producer.send(topic, b'{"dep_delay": 1}', partition=partition, timestamp_ms=END_MS)
        await producer.flush()


def late_by_hour(records: Any) -> Any:
    """The query: the number of late flights in each hour, and their delay in minutes."""
    from pyspark.sql import functions

    return (
        records.withWatermark("timestamp", "1 day")
        .select("timestamp", functions.from_json(records.value.cast("string"), "dep_delay int").dep_delay.alias("late"))
        .where("late > 0")
        .groupBy(functions.window("timestamp", "1 hour").alias("hour"))
        .agg(functions.count("*").alias("flights"), functions.sum("late").alias("minutes"))
        .selectExpr("unix_millis(hour.start) AS hour", "flights", "minutes")
    )


def session() -> Any:
    """A local Spark."""
    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("triokafka windows")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def show(found: triokafka.spark.SourceLag) -> None:
    """Print a line for each batch: the lag of the query."""
    behind = sum(found.behind.values())
    print(f"batch {found.batch_id:3}: {behind:6} behind {'#' * (behind // 1_000)}", flush=True)


def main(bootstrap_servers: str = "localhost:9092", topic: str = "departures", most: str = "40000") -> int:
    """Run it, and return 0 if both answers are equal."""
    trio.run(send, bootstrap_servers, topic, int(most))
    spark = session()
    given = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    spark.streams.addListener(
        triokafka.spark.OffsetCommitListener("hours", bootstrap_servers=bootstrap_servers, exporters=[show])
    )
    try:
        with tempfile.TemporaryDirectory(prefix="triokafka-windows-") as directory:
            records = spark.readStream.format("triokafka").options(
                **given, maxOffsetsPerTrigger=max(1, int(most) // BATCHES)
            )
            writer = (
                late_by_hour(records.load())
                .writeStream.format("parquet")
                .option("path", f"{directory}/hours")
                .option("checkpointLocation", f"{directory}/checkpoint")
            )
            query = writer.start()
            while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < 2):
                query.awaitTermination(0.1)
            query.stop()
            print("stopped, and started again")
            again = writer.trigger(availableNow=True).start()
            again.awaitTermination()
            hours = spark.read.parquet(f"{directory}/hours").collect()
        records = spark.read.format("triokafka").options(**given).load()
        expected = late_by_hour(records).where(f"hour < {END_MS} - 86400000").collect()
    finally:
        spark.stop()
    same = sorted(hours) == sorted(expected)
    print(
        f"{len(hours)} hours, {sum(row['flights'] for row in hours)} late flights: {'equal' if same else 'NOT equal'}"
    )
    return 0 if same and hours else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
