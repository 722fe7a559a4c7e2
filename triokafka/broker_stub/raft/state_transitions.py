"""The state of one node in the quorum, and the transitions between states.

Each transition keeps the rules of an epoch: epochs only grow, a vote in an epoch is never given to another candidate,
and the leader of an epoch never changes. A changed election state is durable before any effect of it leaves the node.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.raft.effects import RaftEffects
from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.election_timeout import ElectionTimeout, Randomness
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.leader_state import CHECK_QUORUM_FACTOR, Leader
from triokafka.broker_stub.raft.peers import Peers
from triokafka.broker_stub.raft.quorum_history import QuorumHistory
from triokafka.broker_stub.raft.quorum_metrics import QuorumMetrics
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_log_interface import RaftLog
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.states import (
    Candidate,
    Endpoints,
    Follower,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from triokafka.broker_stub.raft.vote_count import VoteCount
from triokafka.broker_stub.raft.voter_set import VoterSet, node_of
from triokafka.errors import CorruptRecordError, IllegalStateError
from triokafka.structs import Node

logger = logging.getLogger(__name__)

UPDATE_VOTER_FACTOR: Final = 3
"""Fetch timeouts between two comparisons of a voter's entry in the voter set with its configuration."""
LAST_EPOCH: Final = 2**31 - 1
"""The largest epoch of the wire format. The quorum elects no leader after it."""
LARGEST_STEP: Final = 1 << 24
"""The most epochs that a request may be ahead of this node. A larger step is a mistake or an attack: an election each
second takes half a year for as many. A node that really is so far behind learns the epoch from the nodes it asks."""
COMPLAINT_PAUSE: Final = 10.0


class Quorum:
    """State, log and voters of one node.

    ``high_watermark`` is the offset before which all records are known to be committed, -1 while unknown; it never
    decreases. ``shutting_down`` is set when the node leaves the quorum permanently.

    Args:
        stored: the election state of an earlier run.
        rng: randomness for election timeouts.
        wall_ms: the wall clock, for timestamps of records.
        now: seconds on the monotonic clock, as in every method.
        on_become_leader, on_leave_leadership: called when this node has become the leader, and when it leads no more.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        stored: ElectionState | None,
        *,
        rng: Randomness,
        wall_ms: Callable[[], int],
        now: float,
        on_become_leader: Callable[[Leader, float], None],
        on_leave_leadership: Callable[[Leader], None],
    ) -> None:
        self.config = config
        self.log = log
        self.wall_ms = wall_ms
        self._timeout = ElectionTimeout(config, rng)
        self.effects = RaftEffects(stored)
        self.history = QuorumHistory(config.static_voters)
        self.peers = Peers(
            self.effects,
            retry_backoff=config.retry_backoff_ms / 1000,
            request_timeout=config.request_timeout_ms / 1000,
            rng=rng,
        )
        self.metrics = QuorumMetrics()
        self.high_watermark = -1
        self.shutting_down = False
        self.last_heard: tuple[int, float] | None = None
        """The last leader that this node followed and heard from, and when."""
        self._on_become_leader = on_become_leader
        self._on_leave_leadership = on_leave_leadership
        self._reported: LeaderAndEpoch | None = None
        self._lost_elections = 0
        self._complained_at = -math.inf
        self.history.update(log)
        self.state = self._initial(stored, now)
        self._changed()

    def _initial(self, stored: ElectionState | None, now: float) -> State:
        election = stored if stored is not None else ElectionState(0)
        if election.epoch < self.log.last_epoch:
            if stored is not None and len(self.voters) > 1:
                # This node stores an epoch before it fetches a record of it. Longer than the others' by its epoch, this
                # log would win elections without the records that they have committed.
                raise CorruptRecordError(
                    f"the log has epoch {self.log.last_epoch}, and quorum-state epoch {election.epoch}: one of the two "
                    f"is damaged"
                )
            logger.warning(
                "Node %d: the stored epoch %d is below that of the log, %d",
                self.config.node_id, election.epoch, self.log.last_epoch,
            )  # fmt: skip
            election = ElectionState(self.log.last_epoch)
        election_at = self._timeout.election_at(now)
        if election.leader_id == self.config.node_id:
            # The log may have lost what was not on disk: this node must not lead the epoch again.
            return Resigned(election.epoch, election.leader_id, election.voted, election_at, self._other_voters())
        if election.leader_id is not None:
            voter = self.voters.get(election.leader_id)
            if voter is not None and voter.node(self.config.controller_listener) is not None:
                return self._follower(election, election.leader_id, voter.endpoints, now)
        # A candidate of an earlier run does not ask for votes again: its log may be shorter now.
        is_new = election.epoch == 0 and election.leader_id is None
        at = now if is_new and self.config.elects_at_once else election_at
        return Unattached(election.epoch, election.leader_id, election.voted, at)

    # Facts

    @property
    def epoch(self) -> int:
        """The newest epoch that this node knows."""
        return self.state.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of the epoch; None while unknown."""
        return self.state.leader_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """Epoch and leader for listeners, without a leader that has resigned."""
        resigned = isinstance(self.state, Resigned)
        return LeaderAndEpoch(None if resigned else self.state.leader_id, self.state.epoch)

    @property
    def leader_endpoints(self) -> Endpoints:
        """The addresses of the leader; empty while unknown."""
        match self.state:
            case Leader() | Resigned():
                return self.config.endpoints
            case Follower() | Prospective():
                return self.state.leader_endpoints
            case _:
                return ()

    def leader_node(self, listener: str) -> Node | None:
        """Return the leader's address under a listener's name."""
        leader_id = self.leader_id
        return None if leader_id is None else node_of(leader_id, self.leader_endpoints, listener)

    @property
    def voters(self) -> VoterSet:
        """The newest voters, committed or not."""
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        """Whether this node votes."""
        return self.config.can_vote and self.voters.is_voter(self.config.key)

    @property
    def may_lead(self) -> bool:
        """Whether this node starts elections.

        A voter whose removal may not be committed does so, too: it may be the only node with the record of it. No
        node does so after the last epoch.
        """
        if self.epoch >= LAST_EPOCH:
            return False
        if self.is_voter or not self.config.can_vote:
            return self.is_voter
        previous, changed_at = self.history.previous_voters, self.history.voters_offset
        return (
            previous is not None
            and changed_at is not None
            and changed_at >= self.high_watermark
            and previous.is_voter(self.config.key)
        )

    def is_plausible(self, epoch: int) -> bool:
        """Whether a request with this epoch may come from a node of the quorum. See `LARGEST_STEP`."""
        return epoch <= self.epoch or (epoch < LAST_EPOCH and epoch - self.epoch <= LARGEST_STEP)

    def is_up_to_date(self, last_epoch: int, end_offset: int) -> bool:
        """Whether a log with this end has everything that this node's log has."""
        return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)

    def endpoints_of(self, node_id: int) -> Endpoints:
        """Return the addresses of a voter; empty for another node."""
        voter = self.voters.get(node_id)
        return () if voter is None else voter.endpoints

    def possible_leaders(self, *, excluding: int) -> list[Node]:
        """Return the nodes to ask for the leader: the bootstrap servers, and the voters that the log names."""
        nodes = list(self.config.bootstrap_nodes)
        known = {node[1:3] for node in nodes}
        for voter in self.voters:
            node = voter.node(self.config.controller_listener)
            if node is not None and node[1:3] not in known and voter.node_id != self.config.node_id:
                nodes.append(node)
        return [node for node in nodes if node.node_id != excluding]

    # Timers

    def heard_from_leader(self, state: Follower, now: float) -> None:
        """Follow the leader for another fetch timeout, because it has answered."""
        state.fetch_timeout_at = self._timeout.fetch_timeout_at(now)
        self.last_heard = state.leader_id, now

    # Transitions

    def _enter(self, state: State) -> None:
        before = self.state
        if state.epoch < before.epoch:
            raise IllegalStateError(f"epoch {state.epoch} is before the current epoch {before.epoch}")
        if state.epoch == before.epoch and before.leader_id is not None and state.leader_id != before.leader_id:
            raise IllegalStateError(f"epoch {state.epoch} has leader {before.leader_id}, not {state.leader_id}")
        if isinstance(before, Follower) and before.snapshot is not None and not before.finishing_snapshot:
            before.snapshot.abandon()
        self.state = state
        self.peers.forget_all()
        logger.debug("Node %d: %s -> %s", self.config.node_id, before, state)
        if isinstance(state, (Leader, Follower)):
            self._lost_elections = 0
        if isinstance(before, Leader):
            self.metrics.left_leadership()
            self._on_leave_leadership(before)
        self._changed()

    def _changed(self) -> None:
        state = self.state
        self.effects.save(ElectionState(state.epoch, state.leader_id, state.voted))
        leader = self.leader
        if leader != self._reported:
            self._reported = leader
            self.effects.event(lambda listener: listener.leader_changed(leader))

    def to_unattached(self, epoch: int, now: float, *, leader_id: int | None = None) -> None:
        """Follow no leader in ``epoch``, the present or a newer one."""
        before = self.state
        voted = before.voted if before.epoch == epoch else None
        known = before.leader_id if before.epoch == epoch else leader_id
        match before:
            case Unattached() | Resigned():
                election_at = before.election_at
            case Candidate():
                election_at = before.election_ends_at
            case Prospective() if not before.election.is_lost:
                election_at = before.election_ends_at
            case _:
                election_at = self._timeout.election_at(now)
        self._enter(Unattached(epoch, known, voted, election_at))

    def vote_for(self, state: Unattached | Prospective, candidate: ReplicaKey) -> None:
        """Give the vote of the epoch to ``candidate``."""
        state.voted = candidate
        self._changed()

    def to_prospective(self, now: float) -> None:
        """Ask for pre-votes."""
        self.metrics.election_began(now)
        state = self.state
        election = VoteCount(self.voters, self.config.key)
        self._enter(
            Prospective(
                state.epoch,
                state.leader_id,
                self.leader_endpoints,
                state.voted,
                election,
                self._timeout.election_at(now),
            )
        )
        self.election_advanced(now)

    def election_advanced(self, now: float) -> None:
        """Continue after a vote was recorded: from pre-votes to votes, from votes to leadership."""
        state = self.state
        if isinstance(state, Prospective) and state.election.is_won and self.epoch < LAST_EPOCH:
            election = VoteCount(self.voters, self.config.key)
            self._enter(Candidate(state.epoch + 1, self.config.key, election, self._timeout.election_at(now)))
            state = self.state
        if isinstance(state, Candidate) and state.election.is_won:
            self._to_leader(state, now)
        elif isinstance(state, Prospective) and (state.election.is_lost or state.election.is_won):
            self.pre_vote_lost(state, now)

    def back_off(self, state: Candidate, now: float) -> None:
        """End a lost election soon, so that two candidates do not block each other until the timeout."""
        self._lost_elections += 1
        state.election_ends_at = min(state.election_ends_at, self._timeout.backoff_until(self._lost_elections, now))

    def pre_vote_lost(self, state: Prospective, now: float) -> None:
        """Return to the leader if one is known, else wait for another election."""
        if state.leader_id is not None and state.leader_endpoints:
            self._enter(
                self._follower(
                    ElectionState(state.epoch, voted=state.voted), state.leader_id, state.leader_endpoints, now
                )
            )
        else:
            self.to_unattached(state.epoch, now)

    def _to_leader(self, state: Candidate, now: float) -> None:
        check_quorum = self.config.fetch_timeout_ms / 1000 * CHECK_QUORUM_FACTOR
        leader = Leader(
            self.config.key, state.epoch, self.log.end_offset, self.voters, state.election.granting,
            check_quorum=check_quorum, now=now,
        )  # fmt: skip
        logger.info("Node %d leads the quorum in epoch %d", self.config.node_id, state.epoch)
        self._enter(leader)
        self.metrics.leader_known(now)
        self._on_become_leader(leader, now)

    def _follower(self, election: ElectionState, leader_id: int, endpoints: Endpoints, now: float) -> Follower:
        self.metrics.leader_known(now)
        timeout = self.config.fetch_timeout_ms / 1000
        give_up_at, update_voter_at = self._timeout.fetch_timeout_at(now), now + timeout * UPDATE_VOTER_FACTOR
        return Follower(election.epoch, leader_id, endpoints, election.voted, give_up_at, update_voter_at)

    def to_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now: float) -> None:
        """Fetch from the leader of ``epoch``, the present or a newer one."""
        voted = self.state.voted if self.state.epoch == epoch else None
        self._enter(self._follower(ElectionState(epoch, voted=voted), leader_id, endpoints, now))

    def to_resigned(self, now: float) -> None:
        """Give up the leadership of the epoch."""
        state = self.state
        if not isinstance(state, Leader):
            raise IllegalStateError(f"node {self.config.node_id} does not lead epoch {state.epoch}")
        logger.info("Node %d resigns from epoch %d", self.config.node_id, state.epoch)
        self._enter(
            Resigned(
                state.epoch, state.leader_id, state.voted, self._timeout.election_at(now), self._other_voters(),
                state.successors(),
            )
        )  # fmt: skip

    def _other_voters(self) -> set[int]:
        return {node_id for node_id in self.voters.ids if node_id != self.config.node_id}

    def to_next_epoch(self, now: float) -> None:
        """Leave an epoch in which this node was the leader and no longer votes.

        No epoch follows the last one: the node waits for ever.
        """
        if self.epoch < LAST_EPOCH:
            self.to_unattached(self.epoch + 1, now)
            return
        logger.critical(
            "Node %d: %d was the last epoch of the metadata quorum, and it no longer has a leader. Restore the quorum "
            "from a backup of a controller's metadata directory.",
            self.config.node_id, self.epoch,
        )  # fmt: skip
        assert isinstance(self.state, Resigned)
        self.state.election_at = math.inf

    # Answers of others

    def learn(self, leader_id: int | None, epoch: int, endpoints: Endpoints, now: float) -> bool:
        """Adopt a peer's epoch and leader; return False if they contradict those that this node knows."""
        if not self._is_consistent(leader_id, epoch):
            if now - self._complained_at >= COMPLAINT_PAUSE:  # any client can cause it
                self._complained_at = now
                logger.error(
                    "Node %d: a peer names leader %s in epoch %d, but epoch %d has leader %s",
                    self.config.node_id, leader_id, epoch, self.epoch, self.leader_id,
                )  # fmt: skip
            return False
        if leader_id is not None and not endpoints:
            endpoints = self.endpoints_of(leader_id)
        if epoch > self.epoch:
            if leader_id is not None and endpoints:
                self.to_follower(epoch, leader_id, endpoints, now)
            else:
                self.to_unattached(epoch, now, leader_id=leader_id)
        elif (
            epoch == self.epoch
            and leader_id is not None
            and endpoints
            and (self.leader_id is None or (isinstance(self.state, Unattached) and leader_id != self.config.node_id))
        ):
            self.to_follower(epoch, leader_id, endpoints, now)
        return True

    def _is_consistent(self, leader_id: int | None, epoch: int) -> bool:
        if leader_id == self.config.node_id:
            return epoch < self.epoch or (epoch == self.epoch and isinstance(self.state, (Leader, Resigned)))
        return epoch != self.epoch or leader_id is None or self.leader_id in (None, leader_id)

    # Commitment

    def commit(self, now: float) -> None:
        """Compute the high watermark of this leader, and report it."""
        leader = self.state
        if isinstance(leader, Leader) and leader.update_high_watermark(self.log.flushed_offset):
            self.metrics.committed(leader.high_watermark or 0, now)
            self.advance(leader.high_watermark or 0)

    def advance(self, high_watermark: int) -> None:
        """Record that everything before ``high_watermark`` is committed, as far as this log goes."""
        high_watermark = min(high_watermark, self.log.end_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.effects.event(lambda listener: listener.advanced(high_watermark))

    def voters_changed(self) -> None:
        """Continue with the newest voters, after records were appended or truncated."""
        state = self.state
        voters = self.voters
        match state:
            case Leader():
                state.voters_changed(voters)
            case Prospective() | Candidate() if state.election.voters != voters:
                state.election.voters = voters
            case _:
                pass
