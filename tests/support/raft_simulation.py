"""A quorum in virtual time: nodes over the pure state machine, a network that loses messages, and disks that lose
unsynced data.

One seed gives one run. After every step of a node the invariants of `RaftInvariants` are checked.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tests.support.raft_invariants import RaftInvariants
from tests.support.raft_memory_log import MemoryRaftLog
from triokafka.broker_stub.metadata.records import encode_snapshot_footer
from triokafka.broker_stub.raft.effects import PendingResponse, Send
from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.quorum_history import QuorumHistory
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_core import RaftCore
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.snapshot_header import encode_header
from triokafka.broker_stub.raft.voter_set import NO_VOTERS, Voter, VoterEndpoint, VoterSet
from triokafka.errors import KafkaConnectionError, KafkaError, NotControllerError
from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest
from triokafka.protocol.api.add_raft_voter import Listener as AddListener
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochRequest
from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochRequest
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest
from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest
from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterRequest
from triokafka.protocol.api.vote import VoteRequest
from triokafka.protocol.message import Request
from triokafka.protocol.stored.control_records import ControlRecordType, KRaftVersionRecord, encode_control_key
from triokafka.records import encode_batch
from triokafka.structs import Node

CLUSTER_ID = "simulated-cluster"
ELECTION_TIMEOUT = 1.0
FETCH_TIMEOUT = 2.0
_WALL_START_MS = 1_700_000_000_000


class SimulatedNode:
    """One node: its disk, and while it runs its state machine. It is also the listener of its own quorum."""

    def __init__(self, node_id: int, directory_id: UUID) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.log = MemoryRaftLog()
        self.election: ElectionState | None = None
        self.core: RaftCore | None = None
        self.starts = 0
        self.wake_at = math.inf
        self.saving = self.flushing = self.finishing = False
        self.high_watermark = -1
        self.loaded: list[SnapshotId] = []
        self.leader: LeaderAndEpoch | None = None

    @property
    def key(self) -> ReplicaKey:
        """The identity of the node's replica."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def running(self) -> RaftCore:
        """The state machine of a running node."""
        assert self.core is not None
        return self.core

    # RaftListener

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Remember the leader."""
        self.leader = leader

    def advanced(self, high_watermark: int) -> None:
        """Check that the high watermark never decreases, and store it."""
        assert high_watermark > self.high_watermark, "the high watermark of a node goes back"
        self.high_watermark = high_watermark

    def load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Remember the snapshot. A leader never loads one."""
        assert not isinstance(self.running.quorum.state, Leader), "a leader loads a snapshot"
        self.loaded.append(snapshot_id)

    def snapshot_needed(self) -> None:
        """Fail: no disk is damaged."""
        raise AssertionError("records cannot be read")

    def rolled_back(self, error: KafkaError) -> None:
        """Ignore: nothing waits for answers."""


class RaftSimulation:
    """A quorum with a virtual clock.

    Args:
        voters, observers: how many nodes of each kind; ids count up from 1.
        dynamic: the voters are in the log (kraft.version 1), not in the configuration.
        auto_join: controllers without a vote ask for one.
        loss, duplication: probabilities for each message.
        latency: the longest delay of a message in seconds; each has a random one, so that they overtake each other.
    """

    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 0,
        dynamic: bool = False,
        loss: float = 0.0,
        duplication: float = 0.0,
        latency: float = 0.03,
        append_every: float = 0.15,
        snapshots: bool = False,
        auto_join: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.loss, self.duplication, self.latency = loss, duplication, latency
        self.dynamic, self.auto_join = dynamic, auto_join
        self.nodes: dict[int, SimulatedNode] = {}
        self.cut: set[tuple[int, int]] = set()
        self.invariants = RaftInvariants(self.nodes)
        self.appended = 0
        self.is_appending = True
        self.steps = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        ids = range(1, voters + observers + 1)
        for node_id in ids:
            self.nodes[node_id] = SimulatedNode(node_id, UUID(int=1000 + node_id))
        self.first_voters = [self._address(node_id) for node_id in range(1, voters + 1)]
        for node in self.nodes.values():
            if dynamic:
                self.format(node)
            self.start(node)
        self._every(append_every, self._append)
        if snapshots:
            self._every(append_every * 7, self._take_snapshots)

    # Time

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Run an action at a point in time."""
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run an action after a random delay of at most ``delay`` seconds."""
        self.at(self.now + self.random.random() * delay, action)

    def _every(self, interval: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self.at(self.now + interval * self.random.uniform(0.5, 1.5), act)

        self.at(self.now + interval, act)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, within=seconds, required=False)

    def run_until(self, condition: Callable[[], bool], *, within: float, required: bool = True) -> None:
        """Let time pass until the condition holds; fail if it does not within some seconds."""
        end = self.now + within
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self.steps += 1
            if condition():
                return
        self.now = end
        assert not required or condition(), f"no progress within {within} s: {self.describe()}"

    def describe(self) -> str:
        """Return the state of all nodes, for a failure."""
        return "; ".join(
            f"{node.node_id}: {'down' if node.core is None else node.core.quorum.state!r} "
            f"log [{node.log.start_offset}, {node.log.flushed_offset}, {node.log.end_offset}) hw {node.high_watermark}"
            for node in self.nodes.values()
        )

    # Nodes

    def _address(self, node_id: int) -> Node:
        return Node(node_id, f"node{node_id}", 9093)

    def _endpoint(self, node_id: int) -> VoterEndpoint:
        return VoterEndpoint("CONTROLLER", f"node{node_id}", 9093)

    def _voter(self, node: SimulatedNode) -> Voter:
        return Voter(node.key, (self._endpoint(node.node_id),), 0, 1)

    def format(self, node: SimulatedNode) -> None:
        """Write the snapshot at the start of a dynamic quorum's directory."""
        voters = VoterSet(self._voter(self.nodes[address.node_id]) for address in self.first_voters)
        controls = [
            (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1).encode(0)),
            (ControlRecordType.KRAFT_VOTERS, voters.record().encode(0)),
        ]
        node.log.snapshots[SnapshotId(0, 0)] = encode_batch(
            [(0, encode_control_key(kind), value, ()) for kind, value in controls], control=True, leader_epoch=0
        )

    def add_node(self) -> SimulatedNode:
        """Start one more node, without a vote and without knowledge of the voters."""
        node_id = max(self.nodes) + 1
        node = self.nodes[node_id] = SimulatedNode(node_id, UUID(int=1000 + node_id))
        self.start(node)
        return node

    def start(self, node: SimulatedNode) -> None:
        """Start a node from its disk."""
        node.starts += 1
        node.saving = node.flushing = node.finishing = False
        node.high_watermark = -1
        config = RaftConfig(
            node_id=node.node_id,
            directory_id=node.directory_id,
            cluster_id=CLUSTER_ID,
            static_voters=NO_VOTERS if self.dynamic else VoterSet.static(self.first_voters, "CONTROLLER"),
            bootstrap_servers=[self._address(node_id)[1:3] for node_id in range(1, max(self.nodes) + 1)],
            endpoints=(self._endpoint(node.node_id),),
            election_timeout_ms=round(ELECTION_TIMEOUT * 1000),
            fetch_timeout_ms=round(FETCH_TIMEOUT * 1000),
            fetch_max_bytes=2000,
            auto_join=self.auto_join,
            fetch_snapshot_max_bytes=100,
        )
        node.core = RaftCore(
            config,
            node.log,
            node.election,
            rng=random.Random(self.random.getrandbits(32)),
            wall_ms=lambda: _WALL_START_MS + round(self.now * 1000),
            now=self.now,
        )
        self.invariants.started(node)
        self.step(node)

    def crash(self, node: SimulatedNode) -> None:
        """Kill a node; its disk retains what was synced."""
        if node.core is not None:
            node.core = None
            node.starts += 1
            node.log = node.log.after_crash()

    def restart(self, node: SimulatedNode) -> None:
        """Start a node that is down."""
        if node.core is None:
            self.start(node)

    def wipe(self, node: SimulatedNode) -> None:
        """Replace the empty disk of a node that is down; it gets another directory id."""
        node.log, node.election = MemoryRaftLog(), None
        node.directory_id = UUID(int=node.directory_id.int + 1000)
        self.invariants.wiped(node)

    @property
    def up(self) -> list[SimulatedNode]:
        """The running nodes."""
        return [node for node in self.nodes.values() if node.core is not None]

    @property
    def leaders(self) -> list[SimulatedNode]:
        """The nodes that consider themselves leaders, the one of the newest epoch first."""
        leaders = [node for node in self.up if isinstance(node.running.quorum.state, Leader)]
        return sorted(leaders, key=lambda node: -node.running.quorum.epoch)

    def leader(self) -> SimulatedNode:
        """Return the leader of the newest epoch."""
        return self.leaders[0]

    # The driver of one node

    def step(self, node: SimulatedNode) -> None:
        """Carry out the effects of `RaftCore`, as its driver does."""
        core = node.running
        due_at = core.poll(self.now)
        state = core.unsaved
        if state is not None and not node.saving:
            node.saving = True
            self._later(node, 0.005, lambda: self._saved(node, state))
        output = core.take_output()
        for event in output.events:
            event(node)
        for reply in output.replies:
            reply.release()
        for send in output.sends:
            self._send(node, send)
        if state is None and not node.flushing and node.log.flushed_offset < node.log.end_offset:
            job = node.log.begin_flush()
            assert job is not None
            node.flushing = True
            self._later(node, 0.01, lambda: self._flushed(node, job))
        writer = core.unfinished_snapshot
        if writer is not None and not node.finishing:
            node.finishing = True
            self._later(node, 0.02, lambda: self._finished(node, writer))
        self.invariants.check(node, self.now)
        if due_at < math.inf:
            node.wake_at = max(due_at, self.now + 0.0001)
            wake_at, starts = node.wake_at, node.starts
            self.at(wake_at, lambda: self._wake(node, starts, wake_at))

    def _wake(self, node: SimulatedNode, starts: int, wake_at: float) -> None:
        if node.core is not None and node.starts == starts and node.wake_at == wake_at:
            self.step(node)

    def _later(self, node: SimulatedNode, delay: float, action: Callable[[], None]) -> None:
        starts = node.starts

        def act() -> None:
            if node.core is not None and node.starts == starts:
                action()
                self.step(node)

        self.after(delay, act)

    def _saved(self, node: SimulatedNode, state: ElectionState) -> None:
        node.saving = False
        node.election = state
        self.invariants.stored(node, state)
        node.running.election_saved(state)

    def _flushed(self, node: SimulatedNode, job: Any) -> None:
        node.flushing = False
        node.log.flushed(job)
        node.running.flushed(self.now)

    def _finished(self, node: SimulatedNode, writer: Any) -> None:
        node.finishing = False
        writer.finish()
        node.running.snapshot_finished(writer, self.now)

    # The network

    def isolate(self, *node_ids: int) -> None:
        """Cut these nodes from all others, not from each other."""
        others = [node_id for node_id in self.nodes if node_id not in node_ids]
        self.cut |= {pair for one in node_ids for other in others for pair in ((one, other), (other, one))}

    def heal(self) -> None:
        """Repair the network."""
        self.cut.clear()

    def _passes(self, source: int, destination: int) -> bool:
        return (source, destination) not in self.cut and self.random.random() >= self.loss

    def _send(self, source: SimulatedNode, send: Send) -> None:
        destination = self.nodes.get(int(send.node.host.removeprefix("node")))
        starts = source.starts

        def fail() -> None:
            if source.core is not None and source.starts == starts:
                source.core.request_failed(send, KafkaConnectionError("refused"), self.now)
                self.step(source)

        if destination is None or destination.core is None:
            self.after(self.latency, fail)
            return
        copies = 1 + (self.random.random() < self.duplication)
        for _ in range(copies):
            if self._passes(source.node_id, destination.node_id):
                self.after(self.latency, lambda: self._deliver(source, starts, destination, send))

    def _deliver(self, source: SimulatedNode, starts: int, destination: SimulatedNode, send: Send) -> None:
        if destination.core is None:
            return
        incarnation = destination.starts

        def answer(response: object) -> None:
            self.invariants.answered(destination, send.request, response)
            for _ in range(1 + (self.random.random() < self.duplication)):
                if self._passes(destination.node_id, source.node_id):
                    self.after(self.latency, lambda: receive(response))

        def receive(response: object) -> None:
            if source.core is not None and source.starts == starts:
                source.core.receive(send, response, self.now)
                self.step(source)

        reply = self.handle(destination, send.request)
        assert destination.starts == incarnation
        reply.notify(answer)
        self.step(destination)

    def handle(self, node: SimulatedNode, request: Request[Any]) -> PendingResponse[Any]:
        """Pass a request to a node."""
        core, now = node.running, self.now
        match request:
            case FetchRequest():
                return core.fetch(request, listener="CONTROLLER", now=now)
            case VoteRequest():
                return core.vote(request, listener="CONTROLLER", now=now)
            case BeginQuorumEpochRequest():
                return core.begin_quorum_epoch(request, listener="CONTROLLER", now=now)
            case EndQuorumEpochRequest():
                return core.end_quorum_epoch(request, listener="CONTROLLER", now=now)
            case FetchSnapshotRequest():
                return core.fetch_snapshot(request, listener="CONTROLLER", now=now)
            case AddRaftVoterRequest():
                return core.add_voter(request, now=now)
            case RemoveRaftVoterRequest():
                return core.remove_voter(request, now=now)
            case UpdateRaftVoterRequest():
                return core.update_voter(request, listener="CONTROLLER", now=now)
            case ApiVersionsRequest():
                feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                reply = PendingResponse[ApiVersionsResponse]()
                response = ApiVersionsResponse(api_keys=[], supported_features=[feature])
                core.quorum.effects.answer(reply, response)
                return reply
            case _:
                raise TypeError(type(request).__name__)

    # Work

    def _append(self) -> None:
        for node in self.leaders if self.is_appending else ():
            self.append(node)

    def append(self, node: SimulatedNode) -> None:
        """Append one record through a node that considers itself the leader."""
        core = node.running
        self.appended += 1
        batch = encode_batch(
            [(_WALL_START_MS, None, b"%d" % self.appended, ())],
            base_offset=core.log.end_offset,
            leader_epoch=core.quorum.epoch,
        )
        try:
            core.append(batch, core.quorum.epoch, self.now)
        except NotControllerError:
            return
        self.step(node)

    def _take_snapshots(self) -> None:
        for node in self.up:
            if self.random.random() < 0.4:
                self.take_snapshot(node)

    def take_snapshot(self, node: SimulatedNode) -> None:
        """Write a snapshot of a node's committed records, and drop the log before it."""
        end = next(
            (batch for batch in reversed(node.log.batches) if batch.last_offset < node.high_watermark),
            None,
        )
        if end is None or end.last_offset >= node.log.flushed_offset:
            return
        snapshot_id = SnapshotId(end.last_offset + 1, end.epoch)
        writer = node.log.store_snapshot(snapshot_id)
        if writer is None:
            return
        history: QuorumHistory = node.running.quorum.history
        writer.append(encode_header(history, snapshot_id, timestamp_ms=0))
        writer.append(encode_snapshot_footer(base_offset=3, epoch=end.epoch, timestamp_ms=0))
        writer.finish()
        node.log.delete_before_snapshot(snapshot_id)
        history.trim_before(snapshot_id.end_offset)

    # Changes of the voters

    def add_voter(self, node: SimulatedNode, *, leader: SimulatedNode | None = None) -> PendingResponse[Any] | None:
        """Ask the leader to add a voter."""
        if not self.leaders:
            return None
        leader = self.leader() if leader is None else leader
        listener = AddListener(name="CONTROLLER", host=f"node{node.node_id}", port=9093)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=1000,
            voter_id=node.node_id,
            voter_directory_id=node.directory_id,
            listeners=[listener],
        )
        reply = self.handle(leader, request)
        self.step(leader)
        return reply

    def remove_voter(self, node: SimulatedNode, *, leader: SimulatedNode | None = None) -> PendingResponse[Any] | None:
        """Ask the leader to remove a voter."""
        if not self.leaders:
            return None
        leader = self.leader() if leader is None else leader
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node.node_id, voter_directory_id=node.directory_id
        )
        reply = self.handle(leader, request)
        self.step(leader)
        return reply

    # Conditions

    def agree(self) -> bool:
        """Whether all running nodes follow one leader that has committed a record of its epoch."""
        leaders = self.leaders
        if not leaders:
            return False
        leader = leaders[0]
        state = leader.running.quorum.state
        assert isinstance(state, Leader)
        return state.high_watermark is not None and all(
            node.running.quorum.epoch == state.epoch and node.running.quorum.leader_id == leader.node_id
            for node in self.up
        )

    def caught_up_to(self, offset: int) -> bool:
        """Whether every running node knows that everything before ``offset`` is committed."""
        return all(node.high_watermark >= offset for node in self.up)

    def settle(self, *, within: float = 60.0) -> None:
        """Let the quorum agree, and commit ten more records on all running nodes."""
        self.run_until(self.agree, within=within)
        target = self.leader().log.end_offset + 10
        self.run_until(lambda: self.caught_up_to(target), within=within)
