"""Kafka topics in Spark, without a connector jar: ``spark.read.format("triokafka")``.

`options` reads what the user told Spark, `schema` holds the columns, `reader` plans and reads ranges, `java` finds a
Java. Spark finds the format by itself through the top-level module ``pyspark_triokafka``.
"""

from __future__ import annotations

from triokafka.spark.java import Java, JavaMissingError, find_java, prepare_java

__all__ = ["Java", "JavaMissingError", "find_java", "prepare_java", "session_conf"]


def session_conf() -> dict[str, str]:
    """Session settings that make the source faster: Unix sockets between JVM and Python workers, and worker reuse.

    Both are known to Spark 4.1 and newer, and harmless before.
    """
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.worker.reuse": "true"}
