"""Offsets of a consumer group that become part of a transaction, and their TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class TransactionOffsets:
    """Offsets of one group that become part of the transaction. ``remaining`` are those without an answer."""

    def __init__(self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.group = group
        self.remaining = dict(offsets)

    @property
    def done(self) -> bool:
        """Whether the coordinator has all of them."""
        return not self.remaining

    def request(self, transactional_id: str, identity: ProducerIdentity) -> TxnOffsetCommitRequest:
        """Return the request that commits the remaining offsets."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in self.remaining.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=self.group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=p) for topic, p in topics.items()],
        )
