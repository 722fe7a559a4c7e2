"""The timeouts of a quorum node, by its state: when an election begins or ends, a follower gives its leader up, a
leader resigns, and requests are sent or repeated.

Pure. `RaftCore` calls `Timeouts.poll`, and repeats it while the state changes.
"""

from __future__ import annotations

import math

from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_parts import RaftParts
from triokafka.broker_stub.raft.state_transitions import UPDATE_VOTER_FACTOR, Quorum
from triokafka.broker_stub.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from triokafka.structs import Node


class Timeouts:
    """The timers of each state. ``lead_again_at``: the only voter does not lead before, after a failed write."""

    def __init__(self, quorum: Quorum, parts: RaftParts) -> None:
        self.lead_again_at = -math.inf
        self._config = quorum.config
        self._quorum = quorum
        self._parts = parts

    def poll(self, now: float) -> float:
        """Do what is due in the present state; return the time of the next call if the state has not changed."""
        quorum = self._quorum
        alone = quorum.may_lead and quorum.voters.is_only_voter(self._config.key)
        # A leader that removes itself needs this node's next fetch to commit its removal. It resigns afterwards.
        has_leader = isinstance(quorum.state, Leader | Follower)
        if alone and not quorum.shutting_down and not has_leader:
            if now >= self.lead_again_at:
                quorum.to_prospective(now)  # and leads at once: its own vote is the majority
                return now
            return self.lead_again_at
        match quorum.state:
            case Leader() as leader:
                return self._poll_leader(leader, now)
            case Prospective() | Candidate() as nominee:
                return self._poll_nominee(nominee, now)
            case Follower() as follower:
                return self._poll_follower(follower, now)
            case Unattached() as unattached:
                return self._poll_unattached(unattached, now)
            case Resigned() as resigned:
                return self._poll_resigned(resigned, now)

    def _poll_leader(self, leader: Leader, now: float) -> float:
        quorum = self._quorum
        if quorum.shutting_down or leader.must_resign(now):
            quorum.to_resigned(now)
            return now
        if quorum.voters.is_only_voter(self._config.key):
            return leader.check_quorum_at  # no node to notify
        if now >= leader.begin_epoch_at:
            interval = self._config.fetch_timeout_ms / 2000
            self._parts.voting.announce(leader, now, within=interval)
            leader.begin_epoch_at = now + interval
        return min(leader.check_quorum_at, leader.begin_epoch_at)

    def _poll_nominee(self, nominee: Prospective | Candidate, now: float) -> float:
        quorum = self._quorum
        if now >= nominee.election_ends_at and not quorum.shutting_down:
            if isinstance(nominee, Prospective):
                quorum.pre_vote_lost(nominee, now)
            else:
                quorum.to_prospective(now)
            return now
        due_at = math.inf if quorum.shutting_down else nominee.election_ends_at
        return due_at if nominee.election.is_lost else min(due_at, self._parts.voting.ask(nominee, now))

    def _poll_follower(self, follower: Follower, now: float) -> float:
        from triokafka.broker_stub.raft import messages

        quorum, fetcher = self._quorum, self._parts.fetcher
        peers = quorum.peers
        node = quorum.leader_node(self._config.controller_listener)
        if quorum.may_lead:
            if quorum.shutting_down:
                return math.inf
            if now >= follower.fetch_timeout_at:
                quorum.to_prospective(now)
                return now
            if now >= follower.update_voter_at:
                if node is not None and not self._is_known_to_leader(follower):
                    ready_at = peers.ready_at(node.node_id, now)
                    if ready_at > now:  # a Fetch waits for its answer; the next request to the leader is this one
                        return min(follower.fetch_timeout_at, ready_at)
                    peers.send(node, messages.update_voter_request(quorum), now)
                follower.update_voter_at = now + self._update_voter_period
            due_at = min(follower.fetch_timeout_at, follower.update_voter_at)
            return min(due_at, fetcher.fetch_from(node, now)) if node is not None else due_at
        if self._may_join(follower, node, now):
            assert node is not None
            follower.update_voter_at = now + self._update_voter_period
            peers.send(node, messages.join_request(quorum), now)
        timed_out = node is not None and peers.has_timed_out(node.node_id, now)
        if node is None or timed_out or now >= follower.fetch_timeout_at or peers.is_backing_off(node.node_id, now):
            # Another node may know a newer leader.
            due_at = fetcher.fetch_from_bootstrap(now, excluding=-1 if node is None else node.node_id)
            return due_at if node is None else min(due_at, fetcher.fetch_from(node, now))
        return min(follower.fetch_timeout_at, fetcher.fetch_from(node, now))

    def _is_known_to_leader(self, follower: Follower) -> bool:
        """Whether the leader knows the directory and the endpoints of this voter."""
        quorum = self._quorum
        own = quorum.voters.get(self._config.node_id)
        if quorum.history.kraft_version >= 1:
            return own == self._config.voter
        return own is None or follower.has_announced

    @property
    def _update_voter_period(self) -> float:
        return self._config.fetch_timeout_ms / 1000 * UPDATE_VOTER_FACTOR

    def _may_join(self, follower: Follower, node: Node | None, now: float) -> bool:
        """Whether this controller should ask the leader for a vote: now, and not while it asks for something else."""
        quorum = self._quorum
        return (
            self._config.auto_join
            and self._config.can_vote
            and node is not None
            and now >= follower.update_voter_at
            and follower.has_fetched
            and quorum.history.kraft_version >= 1
            and quorum.peers.ready_at(node.node_id, now) <= now
        )

    def _poll_unattached(self, unattached: Unattached, now: float) -> float:
        quorum = self._quorum
        if quorum.may_lead:
            if quorum.shutting_down:
                return math.inf
            if now >= unattached.election_at:
                quorum.to_prospective(now)
                return now
            return min(unattached.election_at, self._fetch_from_bootstrap(now))
        return self._fetch_from_bootstrap(now)

    def _fetch_from_bootstrap(self, now: float) -> float:
        return self._parts.fetcher.fetch_from_bootstrap(now, excluding=self._config.node_id)

    def _poll_resigned(self, resigned: Resigned, now: float) -> float:
        quorum = self._quorum
        if now >= resigned.election_at and not quorum.shutting_down:
            # It was the leader of this epoch, and cannot follow itself in it.
            quorum.to_next_epoch(now)
            return now
        due_at = math.inf if quorum.shutting_down else resigned.election_at
        return min(due_at, self._parts.voting.end_epoch(resigned, now)) if resigned.unacknowledged else due_at
