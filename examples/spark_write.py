"""Write a Spark DataFrame to a topic, and read it back without Spark. Needs triokafka[spark] and a Java, or
triokafka[java].

python examples/spark_write.py localhost:9092 squares
"""

from __future__ import annotations

import sys

import triokafka
import triokafka.spark


def main(bootstrap_servers: str = "localhost:9092", topic: str = "squares") -> None:
    """Write a hundred squares, each to the partition of its key; print how many there are, and their sum."""
    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("triokafka example")
    for key, value in triokafka.spark.session_conf().items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        squares = spark.range(100).selectExpr("string(id) AS key", "string(id * id) AS value")
        triokafka.spark.write_kafka(squares, topic, **{"kafka.bootstrap.servers": bootstrap_servers})
    finally:
        spark.stop()
    values = triokafka.read_topic(topic, bootstrap_servers=bootstrap_servers, columns=["value"]).read_all()["value"]
    print(len(values), "values, together", sum(map(int, values.to_pylist())))


if __name__ == "__main__":
    main(*sys.argv[1:])
