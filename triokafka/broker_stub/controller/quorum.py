"""DescribeQuorum, for a quorum of one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from triokafka import errors
from triokafka.broker_stub.metadata import topic_names
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.api.describe_quorum import (
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)

_NO_ID: Final = uuid.UUID(int=0)


class QuorumDescription(NamedTuple):
    """The only voter, its epoch as leader, and its offsets. ``endpoints`` are names, hosts and ports."""

    node_id: int
    directory_id: uuid.UUID
    epoch: int
    committed_offset: int
    end_offset: int
    endpoints: Sequence[tuple[str, str, int]] = ()


_WITH_NODES: Final = 2


def describe_quorum(
    quorum: QuorumDescription, request: DescribeQuorumRequest, *, now_ms: int, version: int = _WITH_NODES
) -> DescribeQuorumResponse:
    """The state of the quorum; ``now_ms`` is wall-clock time. There is only partition 0 of the metadata log."""
    if version < _WITH_NODES:
        quorum = quorum._replace(directory_id=_NO_ID)
    topics = [
        DescribedTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(quorum, topic.topic_name, asked.partition_index, now_ms) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    listeners = [Listener(name=name, host=host, port=port) for name, host, port in quorum.endpoints]
    nodes = [Node(node_id=quorum.node_id, listeners=listeners)]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes if version >= _WITH_NODES else [])


def _partition(quorum: QuorumDescription, topic: str, number: int, now_ms: int) -> DescribedPartition:
    if (topic, number) != (topic_names.CLUSTER_METADATA_TOPIC, 0):
        return DescribedPartition(
            partition_index=number,
            error_code=errors.UnknownTopicOrPartitionError.code,
            error_message=f"{topic}-{number} has no quorum",
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )
    leader = ReplicaState(
        replica_id=quorum.node_id,
        replica_directory_id=quorum.directory_id,
        log_end_offset=quorum.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribedPartition(
        partition_index=0,
        error_message=None,
        leader_id=quorum.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.committed_offset + 1,
        current_voters=[leader],
    )
