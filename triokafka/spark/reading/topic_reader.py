"""One batch read: the driver plans tasks, and Python workers read them as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from triokafka.spark.planning.batch_plan import plan_batch
from triokafka.spark.planning.brokers import ask_brokers
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc] # pyspark has no types here
    """The ranges of one Spark task. Spark pickles one for each task, so it holds nothing else."""

    ranges: Task


def as_partitions(tasks: Iterable[Task]) -> list[RangePartition]:
    """Return an input partition for each task."""
    return [RangePartition(task) for task in tasks]


class TopicReader(DataSourceReader):  # type: ignore[misc] # pyspark has no types here
    """Reads the ranges that ``options`` request. Every range is read to its end, or the read fails."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangePartition]:
        """Resolve offsets and return an input partition for each task. Waits at most ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaDataLossError: the requested offsets were deleted, or do not exist yet.
            ConfigurationError: the given offsets do not match the topics' partitions.
            KafkaTimeoutError: no broker answered in time.
        """
        return as_partitions(ask_brokers(self.options, lambda brokers: plan_batch(brokers, self.options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; raises as `read_task` does."""
        # For a plan without ranges, Spark passes one partition without a value.
        if isinstance(partition, RangePartition):
            from triokafka.spark.reading.task_reader import read_task  # not needed for planning

            yield from read_task(self.options, partition.ranges)
