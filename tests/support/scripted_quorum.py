"""A quorum whose elections and replication are controlled by the test: clients like `RaftClient`, without a network.

The records are in real metadata logs. A leader's records reach a follower in one piece when the test, or a running
client, replicates; differing records of the follower are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import trio

from tests.support.control_batches import encode_leader_change
from triokafka.broker_stub.metadata.records import LogBatch, decode_batches, encode_records
from triokafka.broker_stub.raft.election_state import ElectionState, QuorumStateStore
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.quorum_history import QuorumHistory
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_listener import RaftListener
from triokafka.broker_stub.raft.raft_log_interface import RaftLog, SnapshotId, SnapshotWriter
from triokafka.broker_stub.raft.snapshot_header import encode_header
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import KafkaError, KafkaStorageError, NotControllerError
from triokafka.protocol.message import Struct
from triokafka.records import iter_batches
from triokafka.structs import Node
from triokafka.world import World

_READ_BYTES = 1 << 20


class ScriptedRaftClient:
    """One node of a `ScriptedQuorum`. `RaftClient` documents the members."""

    def __init__(
        self,
        quorum: ScriptedQuorum,
        world: World,
        config: RaftConfig,
        log: RaftLog,
        quorum_state: QuorumStateStore,
        listener: RaftListener,
    ) -> None:
        self.failure: KafkaError | None = None
        self.world = world
        self.config = config
        self.log = log
        self.listener = listener
        self.quorum_state = quorum_state
        self.history = QuorumHistory(config.static_voters)
        self.history.update(log)
        self.node_id = config.node_id
        stored = quorum_state.read()
        self.epoch = max(0 if stored is None else stored.epoch, log.last_epoch)
        self.leader = LeaderAndEpoch(None, self.epoch)
        self.high_watermark = -1
        self.epoch_start_offset = -1
        self.appended = trio.Event()
        self._quorum = quorum

    @property
    def is_leader(self) -> bool:
        return self.leader.is_leader(self.node_id)

    @property
    def silence_of_last_leader(self) -> tuple[int, float] | None:
        return None  # leaders change by the script, never by silence

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_version

    def leader_endpoint(self, listener: str | None = None) -> Node | None:
        return None

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        if not self.is_leader or epoch != self.epoch:
            raise NotControllerError(f"this node does not lead epoch {epoch}")
        batch = encode_records(
            records,
            base_offset=self.log.end_offset,
            epoch=epoch,
            timestamp_ms=self.world.wall_ms(),
            metadata_version=metadata_version,
        )
        self.log.append(batch, now_ms=self.world.wall_ms())
        self.appended.set()
        return self.log.end_offset

    def read_committed(self, from_offset: int) -> Iterator[LogBatch]:
        while from_offset < self.high_watermark:
            for batch in decode_batches(self.log.read(from_offset, _READ_BYTES, up_to=self.high_watermark)):
                from_offset = batch.last_offset + 1
                yield batch

    def create_snapshot(self, snapshot_id: SnapshotId, *, timestamp_ms: int) -> SnapshotWriter | None:
        if snapshot_id.end_offset > self.high_watermark:
            raise ValueError(f"{snapshot_id} is after the high watermark {self.high_watermark}")
        writer = self.log.store_snapshot(snapshot_id)
        if writer is not None:
            writer.append(encode_header(self.history, snapshot_id, timestamp_ms=timestamp_ms))
        return writer

    def resign(self, epoch: int) -> None:
        if self.is_leader and self.epoch == epoch:
            self.change_leader(None, epoch)

    async def run(self) -> None:
        """Lead and commit at once if alone; otherwise the test decides."""
        if not self.voters.is_only_voter(self.config.key):
            await trio.sleep_forever()
        self._quorum.elect(self.node_id, replicate=False)
        while True:
            self.appended = trio.Event()
            self._quorum.replicate()
            await self.appended.wait()

    # Changes that the quorum makes

    def change_leader(self, leader_id: int | None, epoch: int) -> None:
        self.epoch = epoch
        self.leader = LeaderAndEpoch(leader_id, epoch)
        if leader_id != self.node_id:
            self.epoch_start_offset = -1
        state = ElectionState(epoch, leader_id)
        self.quorum_state.write(state, kraft_version=self.kraft_version, voter_ids=self.voters.ids)
        self.listener.leader_changed(self.leader)

    def begin_epoch(self) -> None:
        self.epoch_start_offset = self.log.end_offset
        batch = encode_leader_change(
            self.node_id, self.config.directory_id, base_offset=self.end_offset, epoch=self.epoch, timestamp_ms=0
        )
        self.log.append(batch, now_ms=0)

    def flush(self) -> None:
        job = self.log.begin_flush()
        if job is not None:
            job.run()
            self.log.flushed(job)

    def follow(self, leader: ScriptedRaftClient, up_to: int) -> None:
        """Make the log a copy of the leader's before ``up_to``."""
        newest = leader.log.latest_snapshot_id()
        if newest is not None and self.log.end_offset < leader.log.start_offset:
            writer = self.log.store_snapshot(newest)
            if writer is not None:
                writer.append(leader.log.read_snapshot(newest, 0, 1 << 30))
                writer.finish()
            self.log.truncate_to_latest_snapshot()
            self.listener.load_snapshot(newest)
        common = min(self.log.end_offset_for_epoch(leader.log.last_epoch).offset, leader.end_offset)
        while common > self.log.start_offset:
            mine = self.log.end_offset_for_epoch(leader.log.end_offset_for_epoch(self.log.last_epoch).epoch)
            theirs = leader.log.end_offset_for_epoch(mine.epoch)
            if mine.epoch == theirs.epoch:
                common = min(common, mine.offset, theirs.offset)
                break
            self.log.truncate_to(mine.offset)
            common = self.log.end_offset
        self.log.truncate_to(common)
        while self.log.end_offset < up_to:
            data = leader.log.read(self.log.end_offset, _READ_BYTES, up_to=up_to)
            if not any(True for _ in iter_batches(data)):
                break
            self.log.append(data, now_ms=0)
        self.history.update(self.log)

    def advance(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.listener.advanced(high_watermark)


class ScriptedQuorum:
    """Clients by node id, and the links between them that are cut."""

    def __init__(self) -> None:
        self.clients: dict[int, ScriptedRaftClient] = {}
        self.unreachable: set[int] = set()

    def new_client(
        self,
        world: World,
        config: RaftConfig,
        log: RaftLog,
        quorum_state: QuorumStateStore,
        listener: RaftListener,
    ) -> Any:
        """Create the client of a node, as a `NewRaftClient`; it replaces an earlier client of the node."""
        client = ScriptedRaftClient(self, world, config, log, quorum_state, listener)
        self.clients[config.node_id] = client
        return client

    def reachable(self) -> Iterable[ScriptedRaftClient]:
        return [client for client in self.clients.values() if client.node_id not in self.unreachable]

    def leader(self) -> ScriptedRaftClient | None:
        """The reachable leader of the newest epoch."""
        found = [client for client in self.reachable() if client.is_leader]
        return max(found, key=lambda client: client.epoch, default=None)

    def elect(self, node_id: int, *, replicate: bool = True) -> None:
        """Make a node the leader of the next epoch; its log must be as complete as those of a majority."""
        winner = self.clients[node_id]
        epoch = max(client.epoch for client in self.clients.values()) + 1
        for client in self.reachable():
            if client is not winner:
                client.change_leader(node_id, epoch)
        winner.epoch_start_offset = winner.end_offset
        winner.change_leader(node_id, epoch)
        winner.begin_epoch()
        if replicate:
            self.replicate()

    def electable(self) -> list[int]:
        """The reachable nodes whose log is as complete as those of a majority."""
        everybody = list(self.clients.values())
        found = []
        for client in self.reachable():
            own = client.log.last_epoch, client.end_offset
            votes = sum(
                1
                for other in self.reachable()
                if (other.log.last_epoch, other.end_offset) <= own and other.config.can_vote
            )
            if client.config.can_vote and votes * 2 > len([one for one in everybody if one.config.can_vote]):
                found.append(client.node_id)
        return found

    def replicate(self, *, to: Iterable[int] | None = None) -> None:
        """Copy the leader's log to reachable followers, and commit the records that a majority has."""
        leader = self.leader()
        if leader is None:
            return
        try:
            leader.flush()
        except (OSError, KafkaError) as error:
            leader.listener.rolled_back(KafkaStorageError(str(error)))
            leader.failure = KafkaStorageError("closed for writes until a restart")
            return
        end = leader.end_offset
        followers = [
            client
            for client in self.reachable()
            if client is not leader and client.epoch <= leader.epoch and (to is None or client.node_id in to)
        ]
        for client in followers:
            if client.epoch < leader.epoch:
                client.change_leader(leader.node_id, leader.epoch)
            client.follow(leader, end)
            client.flush()
        voters = [client for client in self.clients.values() if client.config.can_vote]
        ends = sorted(
            (client.end_offset if client is leader or client in followers else 0 for client in voters), reverse=True
        )
        committed = ends[len(voters) // 2]
        if committed > leader.epoch_start_offset:
            leader.advance(committed)
            for client in followers:
                client.advance(min(leader.high_watermark, client.end_offset))
