"""A topic as a DataFrame without the Python data source API, by ``mapInArrow``: for Spark 3.3 to 3.5.

The driver plans the ranges and the tasks read them as in ``format("triokafka")``, with the same options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from triokafka.spark.planning.batch_plan import plan_batch
from triokafka.spark.planning.brokers import ask_brokers
from triokafka.spark.planning.client_settings import HiddenValues
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import Task
from triokafka.spark.reading.task_reader import read_task
from triokafka.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa


def read_ranges(spark: Any, options: Mapping[str, str]) -> Any:
    """Return the records of a batch read with these options as a DataFrame with the same columns.

    Offsets are resolved now, and later records are not read. Waits for brokers at most ``default.api.timeout.ms``.
    Records are read by an action on the frame, and again by every further action.

    Args:
        spark: a session; Spark 3.3 and newer.
        options: the options of ``spark.read.format("triokafka")``.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        ConfigurationError: an option is missing or invalid.
        KafkaDataLossError: the requested offsets were deleted, or do not exist yet.
        KafkaTimeoutError: no broker answered in time.
    """
    parsed = ReadOptions.parse(HiddenValues(options))
    parsed.log_warnings()
    tasks = ask_brokers(parsed, lambda brokers: plan_batch(brokers, parsed))
    # One row per task with its number, which is all that Spark needs to pass on.
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(_ReadTasks(parsed, tasks), spark_schema(parsed))


class _ReadTasks:
    """The function of ``mapInArrow`` in a worker; pickled with the plan."""

    def __init__(self, options: ReadOptions, tasks: list[Task]) -> None:
        self._options = options
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_task(self._options, self._tasks[number])
