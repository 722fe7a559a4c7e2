"""The answers of a node of the quorum: error codes and votes, as Apache Kafka gives them."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from tests.support.raft_memory_log import MemoryRaftLog
from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.effects import PendingResponse
from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.election_timeout import ElectionTimeout
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_core import RaftCore
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.state_transitions import LARGEST_STEP, LAST_EPOCH
from triokafka.broker_stub.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint, VoterSet
from triokafka.broker_stub.storage_format import encode_format_snapshot
from triokafka.protocol.api import add_raft_voter, begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest
from triokafka.protocol.api.update_raft_voter import KRaftVersionFeature, Listener, UpdateRaftVoterRequest
from triokafka.records import encode_batch
from triokafka.structs import Node

TOPIC = messages.TOPIC
DIRECTORY = UUID(int=11)
ERRORS = {
    error.code: error
    for error in (
        errors.FencedLeaderEpochError,
        errors.InconsistentClusterIdError,
        errors.InvalidRequestError,
        errors.InvalidVoterKeyError,
        errors.NotLeaderForPartitionError,
        errors.PositionOutOfRangeError,
        errors.RequestTimedOutError,
        errors.SnapshotNotFoundError,
        errors.UnknownLeaderEpochError,
        errors.UnknownTopicOrPartitionError,
        errors.UnsupportedVersionError,
    )
}


class OneNode:
    """Node 1 of the voters 1, 2 and 3, whose disk is always up to date."""

    def __init__(self, *, voters: int = 3, stored: ElectionState | None = None, records: int = 0) -> None:
        self.log = MemoryRaftLog()
        if records:
            values = [(0, None, b"value", ()) for _ in range(records)]
            self.log.append(encode_batch(values, base_offset=0, leader_epoch=1), now_ms=0)
        nodes = [Node(node_id, f"node{node_id}", 9093) for node_id in range(1, voters + 1)]
        config = RaftConfig(
            node_id=1,
            directory_id=DIRECTORY,
            cluster_id="ours",
            static_voters=VoterSet.static(nodes, "CONTROLLER"),
            endpoints=(VoterEndpoint("CONTROLLER", "node1", 9093),),
        )
        self.now = 0.0
        self.core = RaftCore(config, self.log, stored, rng=random.Random(1), wall_ms=lambda: 0, now=0.0)
        self.sent: list[Any] = []
        self.settle()

    @property
    def state(self) -> Any:
        """The state of the node."""
        return self.core.quorum.state

    def settle(self) -> None:
        """Store, sync, and return the requests that the node sends."""
        for _ in range(5):
            self.core.poll(self.now)
            if self.core.unsaved is not None:
                self.core.election_saved(self.core.unsaved)
            job = self.log.begin_flush()
            if job is not None:
                self.log.flushed(job)
                self.core.flushed(self.now)
            self.sent += self.core.take_output().sends

    def after(self, seconds: float) -> OneNode:
        """Let time pass."""
        self.now += seconds
        self.settle()
        return self

    def result(self, reply: PendingResponse[Any]) -> Any:
        """Return the answer to a request; fail if there is none yet."""
        self.settle()
        assert reply.result is not None, "no answer yet"
        return reply.result

    def vote(self, **changes: Any) -> Any:
        """Ask for a vote; return the answer for the partition, or for the request."""
        cluster_id, voter_id = changes.pop("cluster_id", "ours"), changes.pop("voter_id", 1)
        values: dict[str, Any] = {
            "partition_index": 0, "replica_epoch": 5, "replica_id": 2, "replica_directory_id": UUID(int=22),
            "voter_directory_id": DIRECTORY, "last_offset_epoch": 1, "last_offset": 100, "pre_vote": False,
        } | changes  # fmt: skip
        topic = vote.TopicData(topic_name=TOPIC, partitions=[vote.PartitionData(**values)])
        request = vote.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic])
        response = self.result(self.core.vote(request, listener="CONTROLLER", now=self.now))
        return response.topics[0].partitions[0] if response.topics else response

    def begin(self, leader_id: int = 2, epoch: int = 5, **changes: Any) -> Any:
        """Announce a leader."""
        partition = begin_quorum_epoch.PartitionData(
            partition_index=0, voter_directory_id=DIRECTORY, leader_id=leader_id, leader_epoch=epoch
        )
        topic = begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])
        values: dict[str, Any] = {
            "cluster_id": "ours",
            "voter_id": 1,
            "topics": [topic],
            "leader_endpoints": [],
        } | changes
        request = begin_quorum_epoch.BeginQuorumEpochRequest(**values)
        response = self.result(self.core.begin_quorum_epoch(request, listener="CONTROLLER", now=self.now))
        return response.topics[0].partitions[0] if response.topics else response

    def fetch(self, **changes: Any) -> Any:
        """Fetch as node 2; return the partition of the answer."""
        values: dict[str, Any] = {
            "partition": 0, "current_leader_epoch": self.core.quorum.epoch, "fetch_offset": self.log.end_offset,
            "last_fetched_epoch": self.log.last_epoch, "partition_max_bytes": 10_000,
        }  # fmt: skip
        cluster_id, max_wait_ms = changes.pop("cluster_id", "ours"), changes.pop("max_wait_ms", 0)
        replica_id = changes.pop("replica_id", 2)
        topic = fetch.FetchTopic(
            topic=TOPIC, topic_id=messages.TOPIC_ID, partitions=[fetch.FetchPartition(**(values | changes))]
        )
        request = fetch.FetchRequest(
            cluster_id=cluster_id,
            replica_state=fetch.ReplicaState(replica_id=replica_id),
            max_wait_ms=max_wait_ms,
            min_bytes=0,
            topics=[topic],
        )
        response = self.result(self.core.fetch(request, listener="CONTROLLER", now=self.now))
        return response.responses[0].partitions[0] if response.responses else response

    def elect(self) -> OneNode:
        """Make the node the leader, by the votes of node 2."""
        self.after(2.5)
        for _ in range(2):
            send = next(send for send in reversed(self.sent) if send.node.node_id == 2)
            partition = vote.AnsweredPartition(
                partition_index=0, error_code=0, leader_id=-1, leader_epoch=self.core.quorum.epoch, vote_granted=True
            )
            response = vote.VoteResponse(topics=[vote.AnsweredTopic(topic_name=TOPIC, partitions=[partition])])
            self.core.receive(send, response, self.now)
            self.settle()
        assert isinstance(self.state, Leader)
        return self


# Vote


def test_a_voter_grants_one_vote_in_an_epoch() -> None:
    node = OneNode()
    assert node.vote().vote_granted
    assert node.vote().vote_granted, "the same candidate may ask again"
    assert not node.vote(replica_id=3).vote_granted
    assert node.vote(replica_id=3, replica_epoch=6).vote_granted


def test_a_voter_remembers_its_vote_after_a_restart() -> None:
    node = OneNode(stored=ElectionState(5, None, ReplicaKey(2, UUID(int=22))))
    assert not node.vote(replica_id=3).vote_granted
    assert node.vote().vote_granted


def test_a_voter_refuses_a_shorter_log_and_takes_over_the_epoch() -> None:
    node = OneNode(records=10)
    answer = node.vote(last_offset=9)
    assert (answer.error_code, answer.vote_granted, answer.leader_epoch) == (0, False, 5)
    assert node.vote(last_offset=10).vote_granted


def test_a_later_epoch_of_the_last_record_beats_a_longer_log() -> None:
    assert OneNode(records=10).vote(last_offset_epoch=2, last_offset=3).vote_granted


def test_a_voter_that_follows_a_leader_refuses_votes_in_its_epoch() -> None:
    node = OneNode()
    node.begin()
    answer = node.vote(replica_id=3)
    assert (answer.vote_granted, answer.leader_id) == (False, 2)


def test_a_pre_vote_is_no_vote() -> None:
    node = OneNode()
    assert node.vote(pre_vote=True).vote_granted
    assert node.state.voted is None
    assert node.vote(replica_id=3).vote_granted


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "theirs"}, errors.InconsistentClusterIdError),
        ({"last_offset": -1}, errors.InvalidRequestError),
        ({"last_offset_epoch": -1}, errors.InvalidRequestError),
        ({"last_offset_epoch": 5}, errors.InvalidRequestError),
        ({"last_offset_epoch": 6, "pre_vote": True}, errors.InvalidRequestError),
        ({"replica_id": -1}, errors.InvalidRequestError),
        ({"replica_epoch": 1, "last_offset_epoch": 0}, errors.FencedLeaderEpochError),
        ({"voter_id": 3}, errors.InvalidVoterKeyError),
        ({"voter_directory_id": UUID(int=99)}, errors.InvalidVoterKeyError),
        ({"partition_index": 1}, errors.InvalidRequestError),
    ],
)
def test_errors_of_vote(changes: dict[str, Any], error: type[errors.BrokerResponseError]) -> None:
    node = OneNode(stored=ElectionState(2))
    answer = node.vote(**changes)
    assert ERRORS[answer.error_code] is error


def test_a_pre_vote_in_the_epoch_of_the_last_record_is_valid() -> None:
    assert OneNode(stored=ElectionState(2)).vote(pre_vote=True, replica_epoch=2, last_offset_epoch=2).vote_granted


def test_a_vote_is_not_answered_before_it_is_stored() -> None:
    node = OneNode()
    topic = vote.TopicData(
        topic_name=TOPIC,
        partitions=[
            vote.PartitionData(partition_index=0, replica_epoch=5, replica_id=2, last_offset_epoch=1, last_offset=9)
        ],
    )
    node.core.vote(vote.VoteRequest(topics=[topic]), listener="CONTROLLER", now=0.0)
    assert node.core.unsaved == ElectionState(5, None, ReplicaKey(2))
    assert not node.core.take_output().replies
    node.core.election_saved(node.core.unsaved)
    assert len(node.core.take_output().replies) == 1


# Elections


def test_nodes_of_another_cluster_are_logged_once_with_the_own_id(caplog: pytest.LogCaptureFixture) -> None:
    """Such nodes repeat this answer up to 50 times a second."""
    node, answered = OneNode(), 0
    for _ in range(20):
        node.after(0.5)
        new, answered = node.sent[answered:], len(node.sent)
        for send in new:
            if isinstance(send.request, vote.VoteRequest):
                refusal = vote.VoteResponse(error_code=errors.InconsistentClusterIdError.code)
                node.core.receive(send, refusal, node.now)
    messages = sorted(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert [message.split(":")[0:2] for message in messages] == [["Node 1", f" node {n} at node{n}"] for n in (2, 3)]
    assert all("this node belongs to cluster ours" in message for message in messages)


def test_a_voter_requests_pre_votes_before_it_raises_the_epoch() -> None:
    node = OneNode(stored=ElectionState(4)).after(2.5)
    assert isinstance(node.state, Prospective)
    assert node.state.epoch == 4
    requests = [send.request for send in node.sent if isinstance(send.request, vote.VoteRequest)]
    assert {request.topics[0].partitions[0].pre_vote for request in requests} == {True}


def test_a_voter_without_pre_votes_counts_as_one_that_grants_it() -> None:
    node = OneNode(stored=ElectionState(4)).after(2.5)
    send = next(send for send in node.sent if isinstance(send.request, vote.VoteRequest))
    node.core.request_failed(send, errors.UnsupportedVersionError("Vote v2"), node.now)
    assert isinstance(node.state, Candidate)
    assert node.state.epoch == 5


def test_a_leader_of_an_earlier_run_begins_another_epoch() -> None:
    node = OneNode(voters=1, stored=ElectionState(4, 1, ReplicaKey(1, DIRECTORY)))
    assert isinstance(node.state, Leader)
    assert node.state.epoch == 5


def test_the_first_preferred_successor_begins_its_election_immediately() -> None:
    node = OneNode()
    node.begin()
    partition = end_quorum_epoch.PartitionData(
        partition_index=0,
        leader_id=2,
        leader_epoch=5,
        preferred_candidates=[
            end_quorum_epoch.PreferredCandidate(candidate_id=1, candidate_directory_id=DIRECTORY),
            end_quorum_epoch.PreferredCandidate(candidate_id=3, candidate_directory_id=UUID(int=0)),
        ],
    )
    request = end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id="ours", topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])]
    )
    assert isinstance(node.state, Follower)
    node.result(node.core.end_quorum_epoch(request, listener="CONTROLLER", now=node.now))
    assert isinstance(node.state, Prospective)


def test_a_second_leader_of_an_epoch_is_refused() -> None:
    node = OneNode()
    node.begin()
    assert ERRORS[node.begin(leader_id=3).error_code] is errors.InvalidRequestError
    assert node.state.leader_id == 2


def test_begin_quorum_epoch_of_an_old_epoch_is_fenced() -> None:
    node = OneNode(stored=ElectionState(6))
    assert ERRORS[node.begin().error_code] is errors.FencedLeaderEpochError
    assert isinstance(node.state, Unattached)


# Fetch


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "theirs"}, errors.InconsistentClusterIdError),
        ({"partition": 1}, errors.InvalidRequestError),
        ({"max_wait_ms": -1}, errors.InvalidRequestError),
        ({"fetch_offset": -1}, errors.InvalidRequestError),
        ({"last_fetched_epoch": -1}, errors.InvalidRequestError),
        ({"last_fetched_epoch": 9}, errors.InvalidRequestError),
        ({"current_leader_epoch": 0, "last_fetched_epoch": 0}, errors.FencedLeaderEpochError),
        ({"current_leader_epoch": 8}, errors.UnknownLeaderEpochError),
    ],
)
def test_errors_of_fetch(changes: dict[str, Any], error: type[errors.BrokerResponseError]) -> None:
    answer = OneNode().elect().fetch(**changes)
    assert ERRORS[answer.error_code] is error


def test_a_follower_answers_a_fetch_with_the_leader() -> None:
    node = OneNode()
    node.begin()
    answer = node.fetch()
    assert ERRORS[answer.error_code] is errors.NotLeaderForPartitionError
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 5)


def test_a_diverging_follower_learns_the_last_common_epoch_and_its_end() -> None:
    node = OneNode(records=10).elect()
    answer = node.fetch(fetch_offset=20, last_fetched_epoch=1)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 10)
    assert answer.error_code == 0
    assert not answer.records


def test_the_high_watermark_waits_for_a_record_of_the_own_epoch() -> None:
    node = OneNode(records=10).elect()
    node.fetch(fetch_offset=10, last_fetched_epoch=1)
    assert node.state.high_watermark is None
    node.fetch()
    assert node.state.high_watermark == 11


def test_a_leader_resigns_without_the_fetches_of_a_majority() -> None:
    node = OneNode().elect()
    node.after(2.9)
    assert isinstance(node.state, Leader)
    node.fetch()
    node.after(2.9)
    assert isinstance(node.state, Leader)
    node.after(0.2)
    assert not isinstance(node.state, Leader)


def test_a_follower_with_the_first_offset_gets_the_snapshot() -> None:
    node = OneNode(records=10).elect()
    node.log.snapshots[SnapshotId(5, 1)] = b"snapshot"
    answer = node.fetch(fetch_offset=0, last_fetched_epoch=0)
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (5, 1)


@pytest.mark.parametrize("failure", [errors.CorruptRecordError("bad checksum"), errors.KafkaStorageError("gone")])
def test_a_follower_gets_the_snapshot_instead_of_records_that_cannot_be_read(
    failure: errors.BrokerResponseError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = OneNode(records=10).elect()

    def read(*_: object, **__: object) -> bytes:
        raise failure

    monkeypatch.setattr(node.log, "read", read)
    assert node.fetch(fetch_offset=3, last_fetched_epoch=1).error_code == failure.code
    node.log.snapshots[SnapshotId(5, 1)] = b"snapshot"
    answer = node.fetch(fetch_offset=3, last_fetched_epoch=1)
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (5, 1)
    assert node.fetch(fetch_offset=6, last_fetched_epoch=1).error_code == failure.code
    assert isinstance(node.state, Leader)
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]  # once in a while
    assert f"at offset 3 cannot be read: {failure}" in said


def test_a_log_with_a_later_epoch_than_the_stored_one_is_refused_among_other_voters() -> None:
    """The epoch of a batch is not in its checksum, and the log with the latest one wins elections."""
    with pytest.raises(errors.CorruptRecordError, match="the log has epoch 1, and quorum-state epoch 0"):
        OneNode(records=10, stored=ElectionState(0))
    assert isinstance(OneNode(records=10, voters=1, stored=ElectionState(0)).after(2.5).state, Leader)


# FetchSnapshot


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"position": 8}, errors.PositionOutOfRangeError),
        ({"position": -1}, errors.PositionOutOfRangeError),
        ({"snapshot_id": fetch_snapshot.SnapshotId(end_offset=6, epoch=1)}, errors.SnapshotNotFoundError),
        ({"current_leader_epoch": 0}, errors.FencedLeaderEpochError),
        ({"current_leader_epoch": 8}, errors.UnknownLeaderEpochError),
        ({"partition": 1}, errors.UnknownTopicOrPartitionError),
        ({}, None),
    ],
)
def test_errors_of_fetch_snapshot(changes: dict[str, Any], error: type[errors.BrokerResponseError] | None) -> None:
    node = OneNode(records=10).elect()
    node.log.snapshots[SnapshotId(5, 1)] = b"snapshot"
    values: dict[str, Any] = {
        "partition": 0, "current_leader_epoch": node.core.quorum.epoch, "position": 3,
        "snapshot_id": fetch_snapshot.SnapshotId(end_offset=5, epoch=1),
    } | changes  # fmt: skip
    topic = fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=[fetch_snapshot.PartitionSnapshot(**values)])
    request = fetch_snapshot.FetchSnapshotRequest(cluster_id="ours", replica_id=2, max_bytes=3, topics=[topic])
    response = node.result(node.core.fetch_snapshot(request, listener="CONTROLLER", now=node.now))
    answer = response.topics[0].partitions[0]
    if error is None:
        assert (bytes(answer.unaligned_records), answer.position, answer.size) == (b"psh", 3, 8)
    else:
        assert ERRORS[answer.error_code] is error


# Voters


def test_static_voters_cannot_change() -> None:
    node = OneNode().elect()
    node.fetch()
    listener = add_raft_voter.Listener(name="CONTROLLER", host="node4", port=9093)
    addition = add_raft_voter.AddRaftVoterRequest(
        cluster_id="ours", timeout_ms=1000, voter_id=4, voter_directory_id=UUID(int=44), listeners=[listener]
    )
    answer = node.result(node.core.add_voter(addition, now=node.now))
    assert ERRORS[answer.error_code] is errors.UnsupportedVersionError
    assert answer.error_message == "Cluster doesn't support adding voter because the kraft.version feature is 0"
    removal = RemoveRaftVoterRequest(cluster_id="ours", voter_id=2, voter_directory_id=UUID(int=22))
    answer = node.result(node.core.remove_voter(removal, now=node.now))
    assert ERRORS[answer.error_code] is errors.UnsupportedVersionError
    assert answer.error_message == "Cluster doesn't support removing voter because the kraft.version feature is 0"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "theirs"}, errors.InconsistentClusterIdError),
        ({"voter_directory_id": UUID(int=0)}, errors.InvalidRequestError),
        ({"voter_id": -1}, errors.InvalidRequestError),
        ({"listeners": []}, errors.InvalidRequestError),
        ({}, errors.RequestTimedOutError),
    ],
)
def test_errors_of_add_raft_voter(changes: dict[str, Any], error: type[errors.BrokerResponseError]) -> None:
    node = OneNode().elect()  # and has not committed anything in its epoch
    listener = add_raft_voter.Listener(name="CONTROLLER", host="node4", port=9093)
    values: dict[str, Any] = {
        "cluster_id": "ours", "timeout_ms": 1000, "voter_id": 4, "voter_directory_id": UUID(int=44),
        "listeners": [listener],
    } | changes  # fmt: skip
    answer = node.result(node.core.add_voter(add_raft_voter.AddRaftVoterRequest(**values), now=node.now))
    assert ERRORS[answer.error_code] is error


def test_a_follower_refuses_to_add_a_voter() -> None:
    node = OneNode()
    node.begin()
    request = add_raft_voter.AddRaftVoterRequest(
        cluster_id="ours", timeout_ms=1, voter_id=4, voter_directory_id=DIRECTORY
    )
    answer = node.result(node.core.add_voter(request, now=node.now))
    assert ERRORS[answer.error_code] is errors.NotLeaderForPartitionError


# Failures


def test_the_only_voter_continues_leading_after_a_failed_append() -> None:
    """Nothing was appended, and no other replica could lead."""
    node = OneNode(voters=1)
    batch = encode_batch([(0, None, b"value", ())], base_offset=node.log.end_offset, leader_epoch=1)
    node.log.fail_appends = True
    for _ in range(2):
        with pytest.raises(errors.KafkaStorageError):
            node.core.append(batch, 1, node.now)
        node.after(0.2)
    node.log.fail_appends = False
    assert node.core.append(batch, 1, node.now) == node.log.end_offset
    assert node.state.epoch == 1


def test_the_only_voter_leads_another_epoch_after_a_failed_sync() -> None:
    node = OneNode(voters=1)
    batch = encode_batch([(0, None, b"value", ())], base_offset=node.log.end_offset, leader_epoch=1)
    node.core.append(batch, 1, node.now)
    node.core.write_failed(errors.KafkaStorageError("the disk is full"), node.now)
    with pytest.raises(errors.NotControllerError):
        node.core.append(batch, 1, node.now)
    node.after(0.2)
    assert isinstance(node.state, Leader)
    assert node.state.epoch == 2


@pytest.mark.parametrize("voters", [1, 3])
@pytest.mark.parametrize("epoch", [LAST_EPOCH, 2 * LARGEST_STEP])
def test_absurd_epoch_of_a_request_leaves_the_epoch_as_it_is(voters: int, epoch: int) -> None:
    """Otherwise one request of an unknown node would exhaust the epochs, and no leader could ever be elected again."""
    node = OneNode(voters=voters, stored=ElectionState(5))
    before = node.core.quorum.epoch
    ended = end_quorum_epoch.PartitionData(partition_index=0, leader_id=2, leader_epoch=epoch)
    request = end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id="ours", topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[ended])]
    )
    reply = node.core.end_quorum_epoch(request, listener="CONTROLLER", now=node.now)
    for answer in (
        node.vote(replica_epoch=epoch),
        node.vote(replica_epoch=epoch, pre_vote=True),
        node.begin(epoch=epoch),
        node.result(reply).topics[0].partitions[0],
    ):
        assert ERRORS[answer.error_code] is errors.InvalidRequestError
    assert node.core.quorum.epoch == before
    assert node.vote(replica_epoch=before + 1000).error_code == 0


@pytest.mark.parametrize("stored", [ElectionState(LAST_EPOCH), ElectionState(LAST_EPOCH, leader_id=1)])
@pytest.mark.parametrize("voters", [1, 3])
def test_node_begins_no_epoch_after_the_last_one(voters: int, stored: ElectionState) -> None:
    node = OneNode(voters=voters, stored=stored).after(60.0).after(60.0)
    assert node.core.quorum.epoch == LAST_EPOCH
    assert isinstance(node.state, (Unattached, Resigned))


def test_only_voter_leads_the_last_epoch() -> None:
    node = OneNode(voters=1, stored=ElectionState(LAST_EPOCH - 1)).after(60.0)
    assert isinstance(node.state, Leader)
    assert node.core.quorum.epoch == LAST_EPOCH


def test_contradicting_leaders_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    node = OneNode(stored=ElectionState(5))
    node.begin(leader_id=2, epoch=6)
    for _ in range(100):
        assert ERRORS[node.begin(leader_id=3, epoch=6).error_code] is errors.InvalidRequestError
    assert sum("names leader" in record.message for record in caplog.records) == 1


def test_followers_give_up_their_leader_at_different_times() -> None:
    """A leader answers its followers at the same moment; elections at the same moment would split the votes."""
    timeout = ElectionTimeout(OneNode().core.quorum.config, random.Random(1))
    times = [timeout.fetch_timeout_at(10.0) for _ in range(20)]
    assert len(set(times)) == len(times)
    assert all(11.8 <= time <= 12.0 for time in times)
    assert max(times) - min(times) > 0.1


def announce(node: OneNode, voter_id: int, *, versions: tuple[int, int] = (0, 1)) -> int:
    """Send the entry of a voter to the leader; return the error code."""
    request = UpdateRaftVoterRequest(
        cluster_id="ours",
        current_leader_epoch=node.core.quorum.epoch,
        voter_id=voter_id,
        voter_directory_id=UUID(int=voter_id * 11),
        listeners=[Listener(name="CONTROLLER", host=f"node{voter_id}", port=9093)],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=versions[0], max_supported_version=versions[1]),
    )
    reply = node.core.update_voter(request, listener="CONTROLLER", now=node.now)
    return int(node.result(reply).error_code)


def upgraded(node: OneNode, *, validate_only: bool = False) -> str:
    """Raise kraft.version; return the error's text."""
    try:
        node.core.upgrade_kraft_version(1, validate_only=validate_only, now=node.now)
    except errors.BrokerResponseError as error:
        return str(error)
    node.settle()
    return ""


def test_static_voters_become_dynamic_when_the_leader_knows_all_their_directories() -> None:
    node = OneNode().elect()
    assert "does not lead" in upgraded(node)
    node.fetch(replica_directory_id=UUID(int=22))
    assert "[2, 3]" in upgraded(node)
    assert announce(node, 4) == errors.VoterNotFoundError.code
    assert (announce(node, 2), announce(node, 3, versions=(0, 0))) == (0, 0)
    assert "voter 3 supports 0 to 0" in upgraded(node)
    announce(node, 3)
    end = node.log.end_offset
    assert upgraded(node, validate_only=True) == ""
    assert node.log.end_offset == end
    assert upgraded(node) == ""
    history = node.core.quorum.history
    assert (history.kraft_version, node.log.end_offset) == (1, end + 2)
    assert node.core.quorum.voters.keys == tuple(ReplicaKey(n, UUID(int=11 * n)) for n in (1, 2, 3))
    node.fetch(replica_directory_id=UUID(int=22))
    assert node.core.quorum.high_watermark == end + 2
    assert not node.state.observer_progress(node.now)


def test_refused_removal_names_the_directory_as_tools_print_it() -> None:
    node = OneNode().elect()
    node.fetch(replica_directory_id=UUID(int=22))
    assert (announce(node, 2), announce(node, 3)) == (0, 0)
    assert upgraded(node) == ""
    node.fetch(replica_directory_id=UUID(int=22))
    removal = RemoveRaftVoterRequest(cluster_id="ours", voter_id=4, voter_directory_id=UUID(int=44))
    answer = node.result(node.core.remove_voter(removal, now=node.now))
    assert answer.error_code == errors.VoterNotFoundError.code
    assert answer.error_message == (
        "node 4 with directory AAAAAAAAAAAAAAAAAAAALA is not in the voter set, or is the only voter; voters: 1, 2, 3"
    )


def test_static_follower_announces_its_directory_once() -> None:
    node = OneNode()
    node.begin()
    announced = []
    for _ in range(40):
        node.after(0.5)
        node.begin() if node.core.quorum.leader_id is None else None
        state = node.state
        if isinstance(state, Follower):
            state.fetch_timeout_at = node.now + 2
        for send in node.sent:
            if isinstance(send.request, UpdateRaftVoterRequest) and send not in announced:
                announced.append(send)
                node.core.receive(send, send.request.response_type(), node.now)
    assert [send.request.voter_directory_id for send in announced] == [DIRECTORY]


def test_announcement_goes_before_the_next_fetch() -> None:
    """A Fetch nearly always waits for its answer when the announcement is due."""
    node = OneNode()
    node.begin()

    def answer_fetch() -> None:
        partition = fetch.PartitionData(
            partition_index=0,
            high_watermark=0,
            current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
        )
        topic = fetch.FetchableTopicResponse(topic=TOPIC, partitions=[partition])
        assert isinstance(node.sent[-1].request, fetch.FetchRequest)
        node.core.receive(node.sent[-1], fetch.FetchResponse(responses=[topic]), node.now)
        node.settle()

    while node.now < 20 and not isinstance(node.sent[-1].request, UpdateRaftVoterRequest):
        node.after(0.3)  # the leader has no new record for so long
        answer_fetch()
    assert isinstance(node.sent[-1].request, UpdateRaftVoterRequest) and 6.0 <= node.now < 6.5


def test_snapshot_that_ends_where_the_log_ended_replaces_the_voters() -> None:
    """Its own records before that offset came from a leader that committed nothing."""

    def voters_of(*ids: int) -> list[Voter]:
        return [
            Voter(ReplicaKey(one, UUID(int=one)), (VoterEndpoint("CONTROLLER", f"node{one}", 9093),), 0, 1)
            for one in ids
        ]

    node = OneNode()
    node.log.append(encode_format_snapshot(voters_of(1, 2), now_ms=0), now_ms=0)
    history = node.core.quorum.history
    history.update(node.log)
    assert history.voters.ids == (1, 2)
    writer = node.log.store_snapshot(SnapshotId(node.log.end_offset, 1))
    assert writer is not None
    writer.append(encode_format_snapshot(voters_of(1, 2, 3), now_ms=0))
    writer.finish()
    node.core.snapshot_finished(writer, node.now)
    assert history.voters.ids == (1, 2, 3)
