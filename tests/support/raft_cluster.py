"""Several `RaftClient` instances in one simulated world: real files, virtual time, and method calls for a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import trio

from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.metadata_log import MetadataLogFiles
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.broker_stub.raft.voter_set import VoterEndpoint, VoterSet
from triokafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochRequest
from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochRequest
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest
from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterRequest
from triokafka.protocol.api.vote import VoteRequest
from triokafka.protocol.message import Request, Response
from triokafka.protocol.stored.cluster_metadata import TopicRecord
from triokafka.structs import Node
from triokafka.testing.simulated_world import SimulatedWorld
from triokafka.testing.simulation_run import Host, Simulation

R = TypeVar("R", bound=Response)

LATENCY = 0.002


class RecordingListener:
    """Remembers the events of a client."""

    def __init__(self) -> None:
        self.leaders: list[LeaderAndEpoch] = []
        self.high_watermark = -1
        self.snapshots: list[SnapshotId] = []
        self.errors: list[KafkaError] = []
        self.needs_snapshot = 0

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """See `RaftListener`."""
        self.leaders.append(leader)

    def advanced(self, high_watermark: int) -> None:
        """See `RaftListener`."""
        assert high_watermark > self.high_watermark
        self.high_watermark = high_watermark

    def load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """See `RaftListener`."""
        self.snapshots.append(snapshot_id)

    def snapshot_needed(self) -> None:
        """See `RaftListener`."""
        self.needs_snapshot += 1

    def rolled_back(self, error: KafkaError) -> None:
        """See `RaftListener`."""
        self.errors.append(error)


class Member:
    """One node: its machine and, while it runs, its client."""

    def __init__(self, cluster: RaftCluster, node_id: int, host: Host) -> None:
        self.node_id = node_id
        self.host = host
        self.listener = RecordingListener()
        self._cluster = cluster
        self._client: RaftClient | None = None

    @property
    def client(self) -> RaftClient:
        """The running client."""
        assert self._client is not None, f"node {self.node_id} does not run"
        return self._client

    @property
    def is_up(self) -> bool:
        """Whether the node runs."""
        return self._client is not None

    def start(self) -> None:
        """Start the node's process. Cancelling ``scope`` ends its client as a caller does."""
        self.host.start(self._run)

    async def _run(self, world: SimulatedWorld) -> None:
        self.listener = RecordingListener()
        files = MetadataLogFiles(world.storage, "/data", now_ms=world.wall_ms())
        store = QuorumStateFile(world.storage, files.directory)

        def connect(node: Node) -> DirectChannel:
            return DirectChannel(self._cluster, self.node_id, node)

        config = self._cluster.config(self.node_id)
        self._client = RaftClient(world, config, files, store, self.listener, connect)
        try:
            with trio.CancelScope() as self.scope:
                await self._client.run()
        finally:
            self._client = None

    async def kill(self) -> None:
        """Cut the power of the node."""
        await self.host.kill(power_cut=True)

    def append(self, *names: str) -> int:
        """Append topic records through this node; return the end offset."""
        records = [TopicRecord(name=name, topic_id=UUID(int=7)) for name in names]
        return self.client.append(records, self.client.leader.epoch, metadata_version=1)

    def committed(self) -> list[str]:
        """Return the names of the topics in the committed records."""
        batches = self.client.read_committed(0)
        return [record.name for batch in batches for record in batch.records if isinstance(record, TopicRecord)]


class RaftCluster:
    """A quorum of some nodes, with static voters."""

    def __init__(self, simulation: Simulation, *, voters: int = 3, observers: int = 0) -> None:
        self.members: dict[int, Member] = {}
        self.cut: set[int] = set()
        self._voters = [Node(node_id, f"node{node_id}", 9093) for node_id in range(1, voters + 1)]
        for node_id in range(1, voters + observers + 1):
            self.members[node_id] = Member(self, node_id, simulation.host(f"node{node_id}"))
        for member in self.members.values():
            member.start()

    def config(self, node_id: int) -> RaftConfig:
        """Return the configuration of a node."""
        return RaftConfig(
            node_id=node_id,
            directory_id=UUID(int=100 + node_id),
            cluster_id="a-cluster",
            can_vote=node_id <= len(self._voters),
            static_voters=VoterSet.static(self._voters, "CONTROLLER"),
            endpoints=(VoterEndpoint("CONTROLLER", f"node{node_id}", 9093),),
        )

    @property
    def up(self) -> list[Member]:
        """The running nodes."""
        return [member for member in self.members.values() if member.is_up]

    @property
    def leaders(self) -> list[Member]:
        """The nodes that consider themselves leaders, the one of the newest epoch first."""
        return sorted(
            (member for member in self.up if member.client.is_leader), key=lambda member: -member.client.leader.epoch
        )

    async def until(self, condition: Callable[[], bool], *, within: float = 30.0) -> None:
        """Wait until the condition holds."""
        with trio.move_on_after(within):
            while not condition():
                await trio.sleep(0.005)
        assert condition(), f"not within {within} s"

    async def until_committed(self, end: int, *members: Member) -> None:
        """Wait until these members, or all running ones, know that everything below an offset is committed."""
        await self.until(lambda: all(member.listener.high_watermark >= end for member in members or self.up))

    async def leader(self, *, other_than: Member | None = None) -> Member:
        """Wait for a leader that has committed a record of its epoch, and return it."""

        def is_there() -> bool:
            for member in self.leaders[:1]:
                client = member.client
                return member is not other_than and client.high_watermark > client.epoch_start_offset
            return False

        await self.until(is_there)
        return self.leaders[0]

    def receiver(self, source: int, node: Node) -> RaftClient | None:
        """Return the client at an address; None if it does not run or the network is cut."""
        member = self.members[int(node.host.removeprefix("node"))]
        if member.node_id in self.cut or source in self.cut or not member.is_up:
            return None
        return member.client


class DirectChannel:
    """A channel that calls the other client."""

    def __init__(self, cluster: RaftCluster, source: int, node: Node) -> None:
        self._cluster = cluster
        self._source = source
        self._node = node

    async def run(self) -> None:
        """Do nothing until cancelled."""
        await trio.sleep_forever()

    def close(self) -> None:
        """Do nothing."""

    async def send(self, request: Request[R], *, timeout_ms: float | None = None) -> R:
        """Call the method of the other client, as its request handler does."""
        with trio.move_on_after(math.inf if timeout_ms is None else timeout_ms / 1000):
            await trio.sleep(LATENCY)
            client = self._cluster.receiver(self._source, self._node)
            if client is None:
                raise KafkaConnectionError(f"no way to {self._node}")
            response: Any = await self._call(client, request)
            if self._cluster.receiver(self._source, self._node) is not None:
                await trio.sleep(LATENCY)
                return response  # type: ignore[no-any-return]
            await trio.sleep_forever()
        raise RequestTimedOutError("no answer")

    async def _call(self, client: RaftClient, request: object) -> object:
        match request:
            case FetchRequest():
                return await client.fetch(request, version=17)
            case VoteRequest():
                return await client.vote(request, version=2)
            case BeginQuorumEpochRequest():
                return await client.begin_quorum_epoch(request, version=1)
            case EndQuorumEpochRequest():
                return await client.end_quorum_epoch(request, version=1)
            case FetchSnapshotRequest():
                return await client.fetch_snapshot(request, version=1)
            case UpdateRaftVoterRequest():
                return await client.update_voter(request, version=0)
            case _:
                raise TypeError(type(request).__name__)
