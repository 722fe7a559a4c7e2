"""Elections: Vote, BeginQuorumEpoch and EndQuorumEpoch are sent, answered, and their answers counted."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from triokafka import errors
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.replica_key import NO_DIRECTORY, ReplicaKey
from triokafka.broker_stub.raft.responses import Responses
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.broker_stub.raft.states import Candidate, Follower, Prospective, Resigned, State, Unattached
from triokafka.protocol.api.begin_quorum_epoch import AnsweredPartition as BegunPartition
from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from triokafka.protocol.api.end_quorum_epoch import AnsweredPartition as EndedPartition
from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from triokafka.protocol.api.vote import AnsweredPartition as VotedPartition
from triokafka.protocol.api.vote import VoteRequest, VoteResponse
from triokafka.protocol.message import Request
from triokafka.structs import Node

logger = logging.getLogger(__name__)


class Voting:
    """Grants and counts votes, and announces the beginning and the end of an epoch."""

    def __init__(self, quorum: Quorum, responses: Responses) -> None:
        self._quorum = quorum
        self._responses = responses

    # Vote

    def ask(self, nominee: Prospective | Candidate, now: float) -> float:
        """Send Vote to the voters that have not answered; return when the next one can be asked."""
        quorum = self._quorum
        return min(
            (
                self._send(key, messages.vote_request(quorum, key), now)
                for key in nominee.election.unrecorded
                if key.node_id != quorum.config.node_id
            ),
            default=math.inf,
        )

    def vote(self, request: VoteRequest, *, listener: str, now: float) -> VoteResponse:
        """Answer a candidate, or with ``pre_vote`` a prospective one.

        Partition errors: INVALID_REQUEST, FENCED_LEADER_EPOCH, INVALID_VOTER_KEY. Of the whole request:
        INCONSISTENT_CLUSTER_ID, INVALID_REQUEST.
        """
        quorum = self._quorum
        if not messages.is_cluster(request.cluster_id, quorum.config.cluster_id):
            return VoteResponse(error_code=errors.InconsistentClusterIdError.code)
        partition = messages.requested_partition(request.topics)
        if partition is None:
            return VoteResponse(error_code=errors.InvalidRequestError.code)
        epoch, pre_vote = partition.replica_epoch, partition.pre_vote
        last_epoch, end_offset = partition.last_offset_epoch, partition.last_offset
        if min(end_offset, last_epoch) < 0 or (last_epoch > epoch if pre_vote else last_epoch >= epoch):
            return messages.vote_response(quorum, listener, error=errors.InvalidRequestError.code)
        if error := self._voter_error(partition.replica_id, epoch):
            return messages.vote_response(quorum, listener, error=error)
        if epoch > quorum.epoch:
            quorum.to_unattached(epoch, now)
        if not self._is_meant(request.voter_id, partition.voter_directory_id):
            return messages.vote_response(quorum, listener, error=errors.InvalidVoterKeyError.code)
        candidate = ReplicaKey.of(partition.replica_id, partition.replica_directory_id)
        state = quorum.state
        up_to_date = quorum.is_up_to_date(last_epoch, end_offset)
        granted = grants(state, candidate, up_to_date=up_to_date, pre_vote=pre_vote)
        if granted and not pre_vote and isinstance(state, (Unattached, Prospective)) and state.voted is None:
            quorum.vote_for(state, candidate)
        return messages.vote_response(quorum, listener, granted=granted)

    def voted(self, source: Node, response: VoteResponse, now: float) -> bool:
        """Count a vote. Returns whether the voter may be asked again without a pause."""
        partition = messages.only_partition(response.topics)
        handled = self._refused(source, response, partition, now)
        if handled is None and partition is not None:
            self._count(source, granted=partition.vote_granted, now=now)
        return handled is None or handled

    def vote_unsupported(self, source: Node, now: float) -> None:
        """Go on when a voter is too old for pre-votes: count its pre-vote as granted."""
        if isinstance(self._quorum.state, Prospective):
            self._count(source, granted=True, now=now)

    def _count(self, source: Node, *, granted: bool, now: float) -> None:
        quorum = self._quorum
        state = quorum.state
        if not isinstance(state, (Prospective, Candidate)):
            return
        state.election.record(source.node_id, granted=granted)
        if isinstance(state, Candidate) and state.election.is_lost:
            quorum.back_off(state, now)
        quorum.election_advanced(now)

    # BeginQuorumEpoch

    def announce(self, leader: Leader, now: float, *, within: float) -> None:
        """Send BeginQuorumEpoch to the voters that have not fetched ``within`` so many seconds."""
        for key in leader.to_notify(now, within=within):
            self._send(key, messages.begin_request(self._quorum, key), now)

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest, *, listener: str, now: float
    ) -> BeginQuorumEpochResponse:
        """Learn of a leader. Errors: as in `vote`."""
        quorum = self._quorum
        if not messages.is_cluster(request.cluster_id, quorum.config.cluster_id):
            return BeginQuorumEpochResponse(error_code=errors.InconsistentClusterIdError.code)
        partition = messages.requested_partition(request.topics)
        if partition is None:
            return BeginQuorumEpochResponse(error_code=errors.InvalidRequestError.code)
        error = self._learn_leader(partition.leader_id, partition.leader_epoch, request.leader_endpoints, now)
        if not error and not self._is_meant(request.voter_id, partition.voter_directory_id):
            error = errors.InvalidVoterKeyError.code
        return messages.begin_response(quorum, listener, error=error)

    def began_quorum_epoch(self, source: Node, response: BeginQuorumEpochResponse, now: float) -> bool:
        """Handle a voter's response to a BeginQuorumEpoch request."""
        handled = self._refused(source, response, messages.only_partition(response.topics), now)
        return handled is None or handled

    # EndQuorumEpoch

    def end_epoch(self, resigned: Resigned, now: float) -> float:
        """Send EndQuorumEpoch to the voters that have not acknowledged it; return when the next one can be sent."""
        quorum = self._quorum
        return min(
            (
                self._send(key, messages.end_request(quorum, resigned), now)
                for key in quorum.voters.keys
                if key.node_id in resigned.unacknowledged
            ),
            default=math.inf,
        )

    def end_quorum_epoch(self, request: EndQuorumEpochRequest, *, listener: str, now: float) -> EndQuorumEpochResponse:
        """Learn that the leader has resigned: an election follows, the preferred successors first. Errors: as in
        `vote`.
        """
        quorum = self._quorum
        if not messages.is_cluster(request.cluster_id, quorum.config.cluster_id):
            return EndQuorumEpochResponse(error_code=errors.InconsistentClusterIdError.code)
        partition = messages.requested_partition(request.topics)
        if partition is None:
            return EndQuorumEpochResponse(error_code=errors.InvalidRequestError.code)
        error = self._learn_leader(partition.leader_id, partition.leader_epoch, request.leader_endpoints, now)
        state = quorum.state
        if not error and isinstance(state, Follower) and state.leader_id == partition.leader_id:
            state.fetch_timeout_at = now + self._backoff(messages.successors(partition))
            state.has_fetched = False
        return messages.end_response(quorum, listener, error=error)

    def _backoff(self, successors: list[ReplicaKey]) -> float:
        """Return how long this node waits with its election: not at all as the first successor, longer as a later."""
        longest = self._quorum.config.election_backoff_max_ms / 1000
        own = self._quorum.config.key
        position = next((index for index, key in enumerate(successors) if key.admits(own)), len(successors))
        if position == 0 and successors:
            return 0.0
        if position >= len(successors):
            return longest
        return longest / float(2 ** (len(successors) - position))

    def ended_quorum_epoch(self, source: Node, response: EndQuorumEpochResponse, now: float) -> bool:
        """Handle a voter's response to an EndQuorumEpoch request."""
        handled = self._refused(source, response, messages.only_partition(response.topics), now)
        if handled is not None:
            return handled
        if isinstance(self._quorum.state, Resigned):
            self._quorum.state.unacknowledged.discard(source.node_id)
        return True

    def _refused(
        self,
        source: Node,
        response: VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse,
        partition: VotedPartition | BegunPartition | EndedPartition | None,
        now: float,
    ) -> bool | None:
        """Return None if the voter accepted the request; else whether it may be sent again without a pause.

        ``partition`` is the metadata log's part of the response.
        """
        if response.error_code:
            return self._responses.unexpected(source, response.error_code)
        if partition is None:
            return False
        handled = self._responses.common(
            partition.error_code, partition.leader_id, partition.leader_epoch, response.node_endpoints, source, now
        )
        if handled is None and partition.error_code:
            return self._responses.unexpected(source, partition.error_code)
        return handled

    def _learn_leader(
        self, leader_id: int, epoch: int, listeners: Iterable[messages.ListenerAddress], now: float
    ) -> int:
        """Learn of the leader that sent a request; return the error code of the answer."""
        if error := self._voter_error(leader_id, epoch):
            return error
        learned = self._quorum.learn(leader_id, epoch, messages.endpoints_of_listeners(listeners), now)
        return 0 if learned else errors.InvalidRequestError.code

    def _send(self, key: ReplicaKey, request: Request[Any], now: float) -> float:
        node = self._quorum.voters.node(key.node_id, self._quorum.config.controller_listener)
        return math.inf if node is None else self._quorum.peers.send(node, request, now)

    # Checks

    def _voter_error(self, node_id: int, epoch: int) -> int:
        if epoch < self._quorum.epoch:
            return errors.FencedLeaderEpochError.code
        return errors.InvalidRequestError.code if node_id < 0 or not self._quorum.is_plausible(epoch) else 0

    def _is_meant(self, voter_id: int, directory_id: object) -> bool:
        """Whether a request is for this node and its log directory; unknown values of old senders fit."""
        config = self._quorum.config
        if voter_id < 0:
            return True
        return voter_id == config.node_id and directory_id in (NO_DIRECTORY, config.directory_id)


def grants(state: State, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
    """Whether a node in this state votes for the candidate, whose log is ``up_to_date`` or not."""
    if isinstance(state, Leader) or not up_to_date:
        return False
    if pre_vote:
        return not (isinstance(state, Follower) and state.has_fetched)
    if not isinstance(state, (Unattached, Prospective)):
        return False  # the epoch has a leader, or this node has voted for itself
    if state.voted is not None:
        return state.voted.admits(candidate)
    # With a known leader there will be no other one in this epoch.
    return state.leader_id is None
