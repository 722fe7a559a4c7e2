"""A topic as a DataFrame without the Python data source API: for Spark 3.3 to 3.5, by ``mapInArrow``.

The ranges are planned on the driver and read by the tasks as ``format("triokafka")`` does it, with the same options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from triokafka.spark.batch_plan import plan_batch
from triokafka.spark.brokers import ask_brokers
from triokafka.spark.client_settings import HiddenValues
from triokafka.spark.options import ReadOptions
from triokafka.spark.plan import Task
from triokafka.spark.reading import read_task
from triokafka.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa


def read_ranges(spark: Any, options: Mapping[str, str]) -> Any:
    """The records that a batch read with these options has, as a DataFrame with the same columns.

    Offsets are resolved now, and every action on the frame reads them again; what comes later is not read. Waits at
    most ``default.api.timeout.ms`` for brokers. Nothing is read before an action.

    Args:
        spark: the session, also of Spark 3.3 and newer, which has no data sources in Python.
        options: as of ``spark.read.format("triokafka")``.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        ConfigurationError: an option is missing or cannot be used.
        KafkaDataLossError: offsets are asked for that were deleted, or that do not exist yet.
        KafkaTimeoutError: no broker answered in time.
    """
    parsed = ReadOptions.parse(HiddenValues(options))
    parsed.log_warnings()
    tasks = ask_brokers(parsed, lambda brokers: plan_batch(brokers, parsed))
    # One row for each task: its number, which is all that Spark has to bring there.
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(_ReadTasks(parsed, tasks), spark_schema(parsed))


class _ReadTasks:
    """What ``mapInArrow`` calls in a worker; pickled with the plan."""

    def __init__(self, options: ReadOptions, tasks: list[Task]) -> None:
        self._options = options
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_task(self._options, self._tasks[number])
