"""One batch read: tasks are planned on the driver, and each is read by a Python worker as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from triokafka.spark.batch_plan import plan_batch
from triokafka.spark.brokers import ask_brokers
from triokafka.spark.options import ReadOptions
from triokafka.spark.plan import Task

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc] # pyspark has no types here
    """What one Spark task reads. Spark pickles one for each task, so it holds nothing else."""

    ranges: Task


def as_partitions(tasks: Iterable[Task]) -> list[RangePartition]:
    """An input partition for each task."""
    return [RangePartition(task) for task in tasks]


class TopicReader(DataSourceReader):  # type: ignore[misc] # pyspark has no types here
    """Reads the ranges that ``options`` ask for. Every range is read to its end, or an error says why not."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangePartition]:
        """Resolve offsets now, and give an input partition for each task. Waits at most ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaDataLossError: offsets are asked for that were deleted, or that do not exist yet.
            ConfigurationError: the offsets given do not fit the topics' partitions.
            KafkaTimeoutError: no broker answered in time.
        """
        return as_partitions(ask_brokers(self.options, lambda brokers: plan_batch(brokers, self.options)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task; raises as `read_task`."""
        # A plan without ranges comes back as one partition without a value.
        if isinstance(partition, RangePartition):
            from triokafka.spark.reading import read_task  # planning needs none of it

            yield from read_task(self.options, partition.ranges)
