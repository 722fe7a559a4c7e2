"""Kafka as a data source and sink of Spark, without a connector jar: ``spark.read.format("triokafka")``.

`planning` parses options and resolves offsets to tasks, `reading` reads them in Spark's workers, `writing` writes,
`listener` reports lag, `schema` defines the columns, `java` finds a Java, `home` speeds up the start of Spark's Python
processes, `doctor` diagnoses the setup. Spark finds the format by itself through the module ``pyspark_triokafka``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from triokafka.spark.home import prepare_home
from triokafka.spark.java import Java, JavaMissingError, find_java, prepare_java

if TYPE_CHECKING:
    from triokafka.spark.listener.offset_commit_listener import OffsetCommitListener
    from triokafka.spark.listener.query_lag import LogExporter, PrometheusExporter, SourceLag, lag
    from triokafka.spark.listener.waiting import wait_for_query
    from triokafka.spark.reading.map_in_arrow import read_ranges
    from triokafka.spark.writing.foreach_batch import BatchContext, BatchRange, kafka_batch, write_kafka

# Imported on first use: the doctor must work without the clients' packages.
_HOMES: Final = {
    "BatchContext": "triokafka.spark.writing.foreach_batch",
    "BatchRange": "triokafka.spark.writing.foreach_batch",
    "LogExporter": "triokafka.spark.listener.query_lag",
    "OffsetCommitListener": "triokafka.spark.listener.offset_commit_listener",
    "PrometheusExporter": "triokafka.spark.listener.query_lag",
    "SourceLag": "triokafka.spark.listener.query_lag",
    "kafka_batch": "triokafka.spark.writing.foreach_batch",
    "lag": "triokafka.spark.listener.query_lag",
    "read_ranges": "triokafka.spark.reading.map_in_arrow",
    "wait_for_query": "triokafka.spark.listener.waiting",
    "write_kafka": "triokafka.spark.writing.foreach_batch",
}
_NOT_PUBLIC: Final = {"Any", "Final", "TYPE_CHECKING", "annotations", "import_module"}

__all__ = [
    "BatchContext",
    "BatchRange",
    "Java",
    "JavaMissingError",
    "LogExporter",
    "OffsetCommitListener",
    "PrometheusExporter",
    "SourceLag",
    "find_java",
    "kafka_batch",
    "lag",
    "prepare_home",
    "prepare_java",
    "read_ranges",
    "session_conf",
    "wait_for_query",
    "write_kafka",
]


def session_conf() -> dict[str, str]:
    """Return session settings that make the source faster: Unix sockets between JVM and Python workers, worker reuse.

    Spark 4.1 and newer knows both; older versions ignore them.
    """
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.worker.reuse": "true"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _NOT_PUBLIC)
