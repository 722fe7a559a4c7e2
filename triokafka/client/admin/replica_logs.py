"""The log of one replica: read it from any broker that has it, to compare replicas."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.structs import Buffer, TopicPartition

_CONSUMER_AT_FOLLOWER = 11
"""The first version of Fetch in which a follower answers consumers (KIP-392)."""
_BY_NAME = 12
"""The last version with topic names."""


@dataclass(frozen=True, slots=True)
class ReplicaRead:
    """Record batches of a replica, up to its high watermark; the last batch may be incomplete."""

    records: Buffer
    high_watermark: int
    log_start_offset: int


class ReplicaLogAdmin:
    """The part of `AdminClient` about logs of single replicas."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def read_replica(
        self,
        broker_id: int,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        timeout_ms: float | None = None,
    ) -> ReplicaRead:
        """Read record batches from the replica of a broker, the leader or a follower (brokers from 2.4 on).

        The first batch contains ``offset`` and comes whole.

        Raises:
            OffsetOutOfRangeError: the replica does not have the offset.
            NotLeaderForPartitionError, UnknownTopicOrPartitionError, …: the broker has no such replica.
        """
        place = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=partition.topic, partitions=[place])],
        )

        async def ask(call: CallRouting) -> ReplicaRead:
            response = await call.to_node(broker_id, request, min_version=_CONSUMER_AT_FOLLOWER, max_version=_BY_NAME)
            self._retries.check(response.error_code, partition)
            (found,) = response.responses[0].partitions
            self._retries.check(found.error_code, f"{partition} on broker {broker_id}")
            return ReplicaRead(found.records or b"", found.high_watermark, found.log_start_offset)

        return await self._retries.once(ask, timeout_ms)
