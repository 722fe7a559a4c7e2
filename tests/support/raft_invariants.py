"""The invariants of a quorum, which hold at every moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.states import Resigned
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.protocol.api.vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from tests.support.raft_simulation import SimulatedNode


class RaftInvariants:
    """Checks all nodes of a simulation.

    - Epochs only grow, on a node and on its disk.
    - An epoch has one leader at most, and a node that knows the leader of an epoch does not forget it.
    - A node gives at most one vote in an epoch, and its disk knows it before the candidate does.
    - What is committed is on the disks of a majority of the voters.
    - The committed records never change: every node has the same ones, and every new leader has them all.
    - The high watermark never decreases, neither on one node nor from one leader to the next.
    - A log that begins after offset 0 begins with a snapshot.
    - Two consecutive committed voter sets have a voter in common in any two majorities.
    """

    def __init__(self, nodes: dict[int, SimulatedNode]) -> None:
        self._nodes = nodes
        self.committed: list[tuple[int, bytes]] = []
        """Epoch and bytes of the batches, one per offset; only the last offset of a batch has the bytes."""
        self.leader_of: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.voter_sets: list[tuple[int, VoterSet]] = []
        self._epochs: dict[int, int] = {}
        self._leaders: dict[int, tuple[int, int | None]] = {}
        self._complete: set[tuple[int, int]] = set()
        self._checked: dict[int, int] = {}

    def started(self, node: SimulatedNode) -> None:
        """A node has started from its disk: forget everything that was not stored."""
        self._checked[node.node_id] = 0
        self._leaders.pop(node.node_id, None)
        self._epochs[node.node_id] = 0 if node.election is None else node.election.epoch

    def wiped(self, node: SimulatedNode) -> None:
        """A node has lost its disk."""
        self._epochs.pop(node.node_id, None)

    def stored(self, node: SimulatedNode, state: ElectionState) -> None:
        """A node has stored a new election state on its disk."""
        if state.voted is not None:
            before = self.votes.setdefault((node.key, state.epoch), state.voted)
            assert before == state.voted, f"node {node.node_id} votes twice in epoch {state.epoch}"

    def answered(self, node: SimulatedNode, request: Any, response: Any) -> None:
        """Check a vote that a node is about to send."""
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse) or not response.topics:
            return
        asked = request.topics[0].partitions[0]
        given = response.topics[0].partitions[0]
        if given.vote_granted and not asked.pre_vote:
            candidate = ReplicaKey.of(asked.replica_id, asked.replica_directory_id)
            before = self.votes.setdefault((node.key, asked.replica_epoch), candidate)
            assert before.admits(candidate), f"node {node.node_id} votes twice in epoch {asked.replica_epoch}"
            assert node.election is not None
            assert node.election.epoch >= asked.replica_epoch, "a vote was given before it was stored"

    def check(self, node: SimulatedNode, now: float) -> None:
        """Check a node that has just changed."""
        quorum = node.running.quorum
        log = node.log
        assert quorum.epoch >= self._epochs.get(node.node_id, 0), f"the epoch of node {node.node_id} decreases"
        self._epochs[node.node_id] = quorum.epoch
        epoch, leader_id = self._leaders.get(node.node_id, (-1, None))
        if epoch == quorum.epoch and leader_id is not None:
            assert quorum.leader_id == leader_id, f"node {node.node_id} forgets the leader of epoch {epoch}"
        self._leaders[node.node_id] = quorum.epoch, quorum.leader_id
        if quorum.leader_id is not None:
            known = self.leader_of.setdefault(quorum.epoch, quorum.leader_id)
            assert known == quorum.leader_id, f"epoch {quorum.epoch} has the leaders {known} and {quorum.leader_id}"
        if log.start_offset > 0:
            earliest = log.earliest_snapshot_id()
            assert earliest is not None, f"node {node.node_id} has no snapshot"
            assert earliest.end_offset == log.start_offset, f"node {node.node_id}: no snapshot at the log start"
        state = quorum.state
        if isinstance(state, Leader):
            self._check_leader(node, state.epoch, state.high_watermark)
        elif isinstance(state, Resigned) and quorum.high_watermark > len(self.committed):
            # A removed leader resigns at the moment in which it commits its removal.
            self._check_leader(node, state.epoch, quorum.high_watermark)
        self._check_committed(node)

    def _check_leader(self, node: SimulatedNode, epoch: int, high_watermark: int | None) -> None:
        if isinstance(node.running.quorum.state, Leader) and (node.node_id, epoch) not in self._complete:
            self._complete.add((node.node_id, epoch))
            self._check_has(node, 0, len(self.committed), f"leader {node.node_id} of epoch {epoch}")
        if high_watermark is None:
            return
        if high_watermark < len(self.committed):
            # An old leader that does not know of the newer one yet may be behind.
            assert any(newer > epoch for newer in self.leader_of), "the high watermark decreases"
            return
        if high_watermark == len(self.committed):
            return
        voters = node.running.quorum.voters
        having = sum(self._has_on_disk(key, node, high_watermark) for key in voters.keys)
        assert having >= voters.majority, (
            f"offset {high_watermark} is committed in epoch {epoch}, but only {having} of {len(voters)} voters "
            f"have it on disk"
        )
        self._commit(node, high_watermark)

    def _has_on_disk(self, key: ReplicaKey, leader: SimulatedNode, end: int) -> bool:
        node = self._nodes.get(key.node_id)
        if node is None or not key.admits(node.key) or node.log.flushed_offset < end:
            return False
        return self._at(node, end - 1) in (None, self._at(leader, end - 1))

    @staticmethod
    def _at(node: SimulatedNode, offset: int) -> tuple[int, bytes] | None:
        """Return epoch and bytes of the batch with an offset; None if a snapshot has replaced it."""
        for batch in reversed(node.log.batches):
            if batch.base_offset <= offset <= batch.last_offset:
                return batch.epoch, batch.data
        assert offset < node.log.start_offset, f"node {node.node_id} has no record at offset {offset}"
        return None

    def _commit(self, leader: SimulatedNode, high_watermark: int) -> None:
        history = leader.running.quorum.history
        for batch in leader.log.batches:
            if batch.base_offset >= len(self.committed) and batch.last_offset < high_watermark:
                for offset in range(batch.base_offset, batch.last_offset + 1):
                    self.committed.append((batch.epoch, batch.data))
                    voters = history.voters_at(offset)
                    if voters is not None and (not self.voter_sets or self.voter_sets[-1][1] != voters):
                        if self.voter_sets:
                            before = self.voter_sets[-1][1]
                            assert majorities_overlap(before, voters), f"{before} and {voters} have separate majorities"
                        self.voter_sets.append((offset, voters))
        assert len(self.committed) == high_watermark, "the high watermark is inside of a batch"

    def _check_committed(self, node: SimulatedNode) -> None:
        end = min(node.high_watermark, node.log.end_offset)
        start = self._checked.get(node.node_id, 0)
        if end > start:
            assert end <= len(self.committed), (
                f"node {node.node_id} considers offset {end} committed, but no leader does"
            )
            self._check_has(node, start, end, f"node {node.node_id}")
            self._checked[node.node_id] = end

    def _check_has(self, node: SimulatedNode, start: int, end: int, label: str) -> None:
        assert node.log.end_offset >= end, f"{label} lacks committed records from {node.log.end_offset} to {end}"
        for batch in reversed(node.log.batches):
            if batch.last_offset < start:
                break
            if batch.last_offset < end:
                expected = self.committed[batch.last_offset]
                assert (batch.epoch, batch.data) == expected, f"{label} has another record at {batch.last_offset}"


def majorities_overlap(one: VoterSet, other: VoterSet) -> bool:
    """Return whether every majority of one set has a voter in common with every majority of the other set."""
    both = len(set(one.ids) & set(other.ids))
    # The most that a majority can avoid the other one: take the voters outside first, then the common ones.
    need_one = max(0, one.majority - (len(one) - both))
    need_other = max(0, other.majority - (len(other) - both))
    return need_one + need_other > both
