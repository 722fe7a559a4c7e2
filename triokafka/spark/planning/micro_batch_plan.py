"""The plan of one micro-batch on the driver, and its data loss findings. No I/O.

Losses are classified as in the connector; option ``failOnDataLoss`` decides about them. Gaps inside a range
(compaction, aborted and control records) are not losses and not visible here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triokafka.errors import KafkaError
from triokafka.spark.planning.bounds import Offsets, names
from triokafka.spark.planning.offsets_json import format_offsets
from triokafka.spark.planning.tasks import TaskRange
from triokafka.structs import TopicPartition


class Loss(NamedTuple):
    """One finding: a kind of `triokafka.spark.planning.data_loss`, and a message."""

    kind: str
    sentence: str


class Ranges(NamedTuple):
    """The ranges of a batch, by partition in order, and the losses found."""

    ranges: list[TaskRange]
    losses: list[Loss]


class ChangedTargetError(KafkaError):
    """A run of ``Trigger.AvailableNow`` found other partitions or offsets than at its start."""

    advice = "Restart the query: it continues from its checkpoint"


def batch_ranges(start: Offsets, end: Offsets, earliest: Offsets) -> Ranges:
    """Return the ranges between two offsets of a query.

    A partition in ``end`` only is new and is read from its beginning, which ``earliest`` has if the brokers know it. A
    partition in ``start`` only is gone. An empty range is omitted, and so is one that ends before it starts; the next
    batch continues at its end.
    """
    losses: list[Loss] = []
    new = end.keys() - start.keys()
    unknown = new - earliest.keys()
    if unknown:
        losses.append(
            Loss(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
                f"Cannot find initial offsets for partitions {names(unknown)}. They may have been deleted.",
            )
        )
    losses += [
        Loss(
            "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            f"Added partition {one} starts from {earliest[one]} instead of 0.",
        )
        for one in sorted(new & earliest.keys())
        if earliest[one] != 0
    ]
    if gone := start.keys() - end.keys():
        losses.append(Loss("PARTITIONS_DELETED", f"Partitions {names(gone)} have been deleted."))
    ranges = []
    for one in sorted(end.keys() - unknown):
        first, until = start.get(one, earliest.get(one, 0)), end[one]
        if until < first:
            losses.append(
                Loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"Partition {one} offset was changed from {first} to {until}: the topic was recreated, or its log"
                    " was truncated.",
                )
            )
        elif first < until:
            ranges.append(TaskRange(one.topic, one.partition, first, until))
    return Ranges(ranges, losses)


def went_back(known: Offsets, latest: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """Return partitions whose log ends before an offset that the query has reached, with both offsets.

    Brokers may report that briefly during a leader change (SPARK-26267), so the caller must ask again before it counts.
    """
    return {one: (known[one], offset) for one, offset in latest.items() if one in known and offset < known[one]}


class AvailableNowTarget:
    """The end offsets at the start of a ``Trigger.AvailableNow`` run, at which the run stops."""

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = dict(offsets)

    def check(self, end: Offsets, latest: Mapping[TopicPartition, int], *, replayed: bool = False) -> None:
        """Check the end of a batch as the connector does; ``latest`` are the present end offsets.

        ``replayed``: an earlier run planned the batch and may have known fewer partitions.

        Raises:
            ChangedTargetError: the batch has other partitions than the target or goes beyond it; or a partition was
                deleted or truncated since.
        """
        if end.keys() != self.offsets.keys() and not (replayed and end.keys() <= self.offsets.keys()):
            raise ChangedTargetError(
                "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED] Kafka data source in"
                " Trigger.AvailableNow should provide the same topic partitions in pre-fetched offset to end offset for"
                f" each microbatch. topic-partitions for pre-fetched offset: {names(self.offsets)}, topic-partitions"
                f" for end offset: {names(end)}."
            )
        if beyond := _beyond(end, self.offsets):
            raise ChangedTargetError(
                "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED] For Kafka data source with"
                " Trigger.AvailableNow, end offset should have lower or equal offset per each topic partition than"
                f" pre-fetched offset. pre-fetched offset: {_only(self.offsets, beyond)}, end offset:"
                f" {_only(end, beyond)}."
            )
        if end.keys() - latest.keys():
            raise ChangedTargetError(
                "[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] Some of partitions in Kafka topic(s)"
                " have been lost during running query with Trigger.AvailableNow. topic-partitions for latest offset:"
                f" {names(latest)}, topic-partitions for end offset: {names(end)}"
            )
        if beyond := _beyond(end, latest):
            raise ChangedTargetError(
                "[END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW] Some of"
                " partitions in Kafka topic(s) report available offset which is less than end offset during running"
                f" query with Trigger.AvailableNow. latest offset: {_only(latest, beyond)}, end offset:"
                f" {_only(end, beyond)}"
            )


def _beyond(end: Offsets, bounds: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [one for one in end if end[one] > bounds[one]]


def _only(offsets: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> str:
    return format_offsets({one: offsets[one] for one in partitions})
