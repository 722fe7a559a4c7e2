"""Requests with random values: a node of the quorum responds to each one, and none of them stops it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker_stub.raft.test_answers import DIRECTORY, TOPIC, OneNode
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.protocol.api import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest

SMALL = st.integers(-2, 14)
CLUSTERS = st.sampled_from([None, "ours", "ours", "theirs"])
DIRECTORIES = st.sampled_from([UUID(int=0), DIRECTORY, UUID(int=22)])
TOPICS = st.sampled_from([TOPIC, TOPIC, TOPIC, "orders"])


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw the name of a method of the state machine, and a request for it."""
    cluster_id, node_id, epoch = draw(CLUSTERS), draw(SMALL), draw(SMALL)
    directory, topic = draw(DIRECTORIES), draw(TOPICS)
    index = draw(st.sampled_from([0, 0, 0, 1]))
    match draw(st.integers(0, 7)):
        case 0:
            candidacy = vote.PartitionData(
                partition_index=index, replica_epoch=epoch, replica_id=node_id, replica_directory_id=directory,
                voter_directory_id=draw(DIRECTORIES), last_offset_epoch=draw(SMALL), last_offset=draw(SMALL),
                pre_vote=draw(st.booleans()),
            )  # fmt: skip
            topics = [vote.TopicData(topic_name=topic, partitions=[candidacy])] * draw(st.integers(0, 2))
            return "vote", vote.VoteRequest(cluster_id=cluster_id, voter_id=draw(SMALL), topics=topics)
        case 1:
            begun = begin_quorum_epoch.PartitionData(
                partition_index=index, voter_directory_id=directory, leader_id=node_id, leader_epoch=epoch
            )
            return "begin_quorum_epoch", begin_quorum_epoch.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=draw(SMALL),
                topics=[begin_quorum_epoch.TopicData(topic_name=topic, partitions=[begun])],
            )
        case 2:
            ended = end_quorum_epoch.PartitionData(
                partition_index=index, leader_id=node_id, leader_epoch=epoch, preferred_successors=draw(st.lists(SMALL))
            )
            return "end_quorum_epoch", end_quorum_epoch.EndQuorumEpochRequest(
                cluster_id=cluster_id, topics=[end_quorum_epoch.TopicData(topic_name=topic, partitions=[ended])]
            )
        case 3:
            partition = fetch.FetchPartition(
                partition=index, current_leader_epoch=epoch, fetch_offset=draw(SMALL), last_fetched_epoch=draw(SMALL),
                partition_max_bytes=draw(SMALL), replica_directory_id=directory, high_watermark=draw(SMALL),
            )  # fmt: skip
            return "fetch", fetch.FetchRequest(
                cluster_id=cluster_id, replica_state=fetch.ReplicaState(replica_id=node_id), max_wait_ms=draw(SMALL),
                min_bytes=draw(SMALL), max_bytes=draw(SMALL),
                topics=[fetch.FetchTopic(topic=topic, topic_id=messages.TOPIC_ID, partitions=[partition])],
            )  # fmt: skip
        case 4:
            wanted = fetch_snapshot.PartitionSnapshot(
                partition=index, current_leader_epoch=epoch, position=draw(SMALL),
                snapshot_id=fetch_snapshot.SnapshotId(end_offset=draw(SMALL), epoch=draw(SMALL)),
            )  # fmt: skip
            return "fetch_snapshot", fetch_snapshot.FetchSnapshotRequest(
                cluster_id=cluster_id, replica_id=node_id, max_bytes=draw(SMALL),
                topics=[fetch_snapshot.TopicSnapshot(name=topic, partitions=[wanted])] * draw(st.integers(0, 2)),
            )  # fmt: skip
        case 5:
            listener = add_raft_voter.Listener(name="CONTROLLER", host="node4", port=9093)
            return "add_voter", add_raft_voter.AddRaftVoterRequest(
                cluster_id=cluster_id, timeout_ms=draw(SMALL), voter_id=node_id, voter_directory_id=directory,
                listeners=[listener] * draw(st.integers(0, 2)),
            )  # fmt: skip
        case 6:
            return "remove_voter", RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory
            )
        case _:
            versions = update_raft_voter.KRaftVersionFeature(
                min_supported_version=draw(SMALL), max_supported_version=draw(SMALL)
            )
            return "update_voter", update_raft_voter.UpdateRaftVoterRequest(
                cluster_id=cluster_id, current_leader_epoch=epoch, voter_id=node_id, voter_directory_id=directory,
                kraft_version_feature=versions,
            )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(requests(), max_size=15), st.sampled_from([1, 3]), st.booleans())
def test_every_request_gets_a_response_and_the_node_continues(
    sent: list[tuple[str, Any]], voters: int, is_elected: bool
) -> None:
    node = OneNode(voters=voters, records=10)
    node.log.snapshots[SnapshotId(5, 1)] = b"snapshot"
    if is_elected and voters > 1:
        node.elect()
    epoch = node.core.quorum.epoch
    replies = []
    for method, request in sent:
        named = {} if method in ("add_voter", "remove_voter") else {"listener": "CONTROLLER"}
        replies.append(getattr(node.core, method)(request, now=node.now, **named))
        node.settle()
        assert node.core.quorum.epoch >= epoch
        epoch = node.core.quorum.epoch
    node.after(10.0)
    assert all(reply.result is not None for reply in replies)
    if voters == 1:
        assert isinstance(node.state, Leader)
