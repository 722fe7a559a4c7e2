"""DescribeQuorum: how far the voters and observers are, as the leader knows it."""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.leader_state import Leader, ReplicaProgress
from triokafka.broker_stub.raft.replica_key import NO_DIRECTORY
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.protocol.api.describe_quorum import (
    DescribedPartition,
    DescribedTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)

_WITH_NODES = 2


def describe_quorum(
    quorum: Quorum, request: DescribeQuorumRequest, *, version: int, now: float
) -> DescribeQuorumResponse:
    """Return the state of the quorum.

    Partition errors: UNKNOWN_TOPIC_OR_PARTITION for anything but the metadata log, NOT_LEADER_OR_FOLLOWER.
    """
    topics = [
        DescribedTopic(
            topic_name=topic.topic_name,
            partitions=[
                _partition(quorum, topic.topic_name, asked.partition_index, version, now) for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = [
        Node(
            node_id=voter.node_id,
            listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        )
        for voter in quorum.voters
    ]
    leads = isinstance(quorum.state, Leader)
    return DescribeQuorumResponse(
        error_message="", topics=topics, nodes=nodes if version >= _WITH_NODES and leads else []
    )


def _partition(quorum: Quorum, topic: str, number: int, version: int, now: float) -> DescribedPartition:
    leader = quorum.state
    known = (topic, number) == (messages.TOPIC, 0)
    if not known or not isinstance(leader, Leader):
        error: type[errors.BrokerResponseError] = errors.NotLeaderForPartitionError
        message = f"node {quorum.config.node_id} is not the leader; that is node {quorum.leader.leader_id}"
        if not known:
            error, message = errors.UnknownTopicOrPartitionError, f"{topic}-{number} has no quorum"
        return DescribedPartition(
            partition_index=number,
            error_code=error.code,
            error_message=message,
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )

    def wall_ms(at: float | None) -> int:
        return -1 if at is None else quorum.wall_ms() - round((now - at) * 1000)

    def state(progress: ReplicaProgress) -> ReplicaState:
        directory = NO_DIRECTORY if version < _WITH_NODES else progress.key.wire_directory_id
        if progress.key.node_id == leader.leader_id:
            return ReplicaState(
                replica_id=leader.leader_id,
                replica_directory_id=directory,
                log_end_offset=quorum.log.end_offset,
                last_fetch_timestamp=quorum.wall_ms(),
                last_caught_up_timestamp=quorum.wall_ms(),
            )
        return ReplicaState(
            replica_id=progress.key.node_id,
            replica_directory_id=directory,
            log_end_offset=-1 if progress.end_offset is None else progress.end_offset,
            last_fetch_timestamp=wall_ms(progress.fetched_at),
            last_caught_up_timestamp=wall_ms(progress.caught_up_at),
        )

    return DescribedPartition(
        partition_index=0,
        error_message="",
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=[state(progress) for progress in leader.voter_progress],
        observers=[state(progress) for progress in leader.observer_progress(now)],
    )
