"""Read a topic into a Spark DataFrame, without a connector jar. Needs triokafka[spark] and a Java, or triokafka[java].

python examples/spark_read.py localhost:9092 orders
"""

from __future__ import annotations

import sys

import triokafka.spark


def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders") -> None:
    """Count a topic's records by partition."""
    triokafka.spark.prepare_java()  # an installed Java, or else the one from PyPI
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("triokafka example")
    for key, value in triokafka.spark.session_conf().items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        records = (
            spark.read.format("triokafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        records.groupBy("partition").count().orderBy("partition").show()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
