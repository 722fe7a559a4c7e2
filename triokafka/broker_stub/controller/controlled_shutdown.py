"""Controlled shutdown: a broker that wants to stop hands over its leaderships, and stops when the others know it.

Pure, like `BrokerControl`, which calls it for each heartbeat of such a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.controller import broker_failover
from triokafka.broker_stub.controller.broker_sessions import BrokerSession
from triokafka.broker_stub.controller.partition_change import NO_BROKER, TopicConfig
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord


def leader_moves(image: MetadataImage, broker_id: int, config_of: TopicConfig) -> list[PartitionChangeRecord]:
    """Return the changes that make other brokers lead what a broker leads, without unclean elections.

    It goes on leading partitions without other replicas until it stops.
    """

    def clean(topic: str) -> LogConfig:
        return config_of(topic)._replace(unclean_leader_election_enable=False)

    return [
        change
        for change in broker_failover.broker_fenced(image, broker_id, clean)
        if len(image.topics_by_id[change.topic_id].partitions[change.partition_id].replicas) > 1
        and change.leader != NO_BROKER
    ]


def records_until_stopped(
    broker: BrokerImage,
    session: BrokerSession,
    moved: Sequence[PartitionChangeRecord],
    lowest_active_offset: int | None,
    next_offset: int,
) -> Sequence[Struct] | None:
    """Return the records to append before the broker may stop; None when it may stop now.

    Its leaderships move first. It may stop when every active broker has applied the last such change, or at once when
    it leads nothing that others can lead.

    Args:
        moved: the changes of `leader_moves`.
        lowest_active_offset: the lowest offset that an active broker reported as applied; None without active brokers.
        next_offset: the offset of the next record.
    """
    records: Sequence[Struct] = moved
    if not broker.in_controlled_shutdown:
        if all(change.leader < 0 for change in moved):
            return None
        begun = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
        )
        records = [begun, *moved]
    if records:
        session.controlled_shutdown_offset = next_offset + len(records) - 1
        return records
    if session.controlled_shutdown_offset < 0:  # a former controller moved the leaderships
        session.controlled_shutdown_offset = next_offset - 1
    applied = lowest_active_offset is None or lowest_active_offset >= session.controlled_shutdown_offset
    return None if applied else []
