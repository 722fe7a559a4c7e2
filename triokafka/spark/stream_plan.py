"""What one micro-batch reads, and whether the brokers still have it: the driver's decisions. No I/O.

Losses are named by the connector's classes; option ``failOnDataLoss`` says what is done about them. Gaps
inside a range (compaction, aborted and control records) are none, and not seen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triokafka.errors import KafkaError
from triokafka.spark.offsets import Offsets, format_offsets, names
from triokafka.spark.plan import OffsetRange
from triokafka.structs import TopicPartition


class Loss(NamedTuple):
    """One finding: a kind that `triokafka.spark.data_loss` knows, and what was found."""

    kind: str
    sentence: str


class Ranges(NamedTuple):
    """What a batch reads, by partition in order; and what is missing in it."""

    ranges: list[OffsetRange]
    losses: list[Loss]


class ChangedTargetError(KafkaError):
    """A run of ``Trigger.AvailableNow`` found other partitions or offsets than those it set out to read."""

    advice = "Restart the query: it sets out anew from its checkpoint"


def batch_ranges(start: Offsets, end: Offsets, earliest: Offsets) -> Ranges:
    """The ranges between two offsets of a query.

    A partition of ``end`` only is new, and read from its beginning; ``earliest`` has the beginnings of those, as far as
    the brokers know them. A partition of ``start`` only is gone. An empty range is left out, and so is one that ends
    before it starts: the next batch goes on at its end.
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
                    f"Partition {one} offset was changed from {first} to {until}: the topic was made anew, or its log"
                    " was cut.",
                )
            )
        elif first < until:
            ranges.append(OffsetRange(one.topic, one.partition, first, until))
    return Ranges(ranges, losses)


def went_back(known: Offsets, latest: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions whose log ends before an offset that a query has reached, with both offsets.

    Brokers that change leaders tell that for a moment (SPARK-26267), so ask again before it counts.
    """
    return {one: (known[one], offset) for one, offset in latest.items() if one in known and offset < known[one]}


class AvailableNowTarget:
    """What there was when a run of ``Trigger.AvailableNow`` began; the run reads up to there."""

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = dict(offsets)

    def check(self, end: Offsets, latest: Mapping[TopicPartition, int], *, replayed: bool = False) -> None:
        """Check the end of a batch, as the connector does; ``latest`` is where the partitions end now.

        ``replayed``: the batch was planned by an earlier run, which may have known fewer partitions.

        Raises:
            ChangedTargetError: the batch has other partitions than the target, or goes beyond it; or a partition was
                deleted or cut since.
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
