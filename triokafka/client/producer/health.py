"""The health of a producer as plain values, which `Producer.health` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.network.broker_status import BrokerStatus
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

_MOST_TROUBLES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerHealth:
    """A producer at one moment. Ages are seconds; None means never, or nothing.

    ``state`` is "new", "open", "closing", "closed" or "failed". ``unacknowledged_age`` is the age of the oldest batch
    that is neither acknowledged nor failed. ``troubles`` are sentences about current problems;
    ``failure`` is the error that made the producer unusable.
    """

    state: str
    brokers: tuple[BrokerStatus, ...]
    metadata_age: float | None
    unacknowledged_records: int
    unacknowledged_age: float | None
    waiting_senders: int
    troubles: tuple[str, ...]
    failure: Exception | None

    @property
    def healthy(self) -> bool:
        """Whether there is no problem. A producer that has sent nothing yet is healthy."""
        return self.failure is None and not self.troubles

    @property
    def connected(self) -> tuple[int, ...]:
        """Ids of the brokers with a ready connection."""
        return tuple(broker.node.node_id for broker in self.brokers if broker.connected)


def take_health(
    state: str, accumulator: Accumulator, client: NetworkClient, now: float, failure: Exception | None
) -> ProducerHealth:
    """Collect the health of a producer's parts."""
    batches = accumulator.batches.all()
    brokers = client.broker_statuses()
    refreshed = client.metadata.last_success
    troubles = client.broker_troubles() + _partition_troubles(batches, client, now)
    return ProducerHealth(
        state="failed" if failure is not None else state,
        brokers=tuple(brokers),
        metadata_age=now - refreshed if refreshed is not None else None,
        unacknowledged_records=sum(batch.count for batch in batches),
        unacknowledged_age=now - batches[0].created_at if batches else None,
        waiting_senders=accumulator.pool.waiting,
        troubles=tuple(troubles[:_MOST_TROUBLES]),
        failure=failure,
    )


def _partition_troubles(batches: Sequence[ProducerBatch], client: NetworkClient, now: float) -> list[str]:
    """Describe the partitions whose oldest batch has failed before, or that have no leader."""
    troubles: dict[TopicPartition, str] = {}
    for batch in batches:
        partition = batch.topic_partition
        if partition in troubles:
            continue
        if batch.last_error is not None:
            troubles[partition] = (
                f"{partition}: a batch has failed {batch.attempts} times in {now - batch.created_at:.1f} s, the last"
                f" time with {batch.last_error!r}"
            )
        elif client.cluster.leader_for(partition) < 0:
            troubles[partition] = f"{partition} has no leader; records wait for {now - batch.created_at:.1f} s"
    return list(troubles.values())
