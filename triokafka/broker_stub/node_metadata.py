"""The metadata of one node: its log, its part in the quorum, and the image that both roles of the node follow.

`NodeMetadata` is the listener of the node's `RaftClient`. While another node leads, one task replays and publishes what
the quorum has committed (`MetadataLoader`). When this node leads, and the task has replayed everything before its
epoch, it hands over to the active controller, which publishes the changes that it made itself. When this node leads no
more, the controller publishes what was committed, and the task continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.meta_properties import ClusterIdentity, open_directories
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.loader import LoadedChange, MetadataLoader
from triokafka.broker_stub.metadata.publisher import MetadataFollower, MetadataPublisher
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.quorum_connections import quorum_client
from triokafka.broker_stub.raft.election_state import QuorumStateStore
from triokafka.broker_stub.raft.leader_and_epoch import LeaderAndEpoch
from triokafka.broker_stub.raft.metadata_log import KEEP_ALL, MetadataLogFiles
from triokafka.broker_stub.raft.metadata_log_interface import MetadataLogListener
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.broker_stub.raft.raft_config import RaftConfig
from triokafka.broker_stub.raft.raft_listener import RaftListener
from triokafka.broker_stub.raft.raft_log_interface import RaftLog
from triokafka.broker_stub.raft.voter_set import VoterEndpoint
from triokafka.broker_stub.raft_options import controller_endpoints, has_other_nodes, raft_config
from triokafka.broker_stub.snapshot_generator import SnapshotGenerator
from triokafka.broker_stub.storage_format import format_metadata_directory, read_bootstrap_records
from triokafka.broker_stub.work_budget import run_within_budget
from triokafka.errors import CorruptRecordError, IllegalStateError, KafkaError, KafkaStorageError, ProtocolError
from triokafka.protocol.message import Struct
from triokafka.structs import Node
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

NewRaftClient: TypeAlias = Callable[[World, RaftConfig, RaftLog, QuorumStateStore, RaftListener], RaftClient]
"""Makes the node's client of the quorum."""


class NodeMetadata:
    """The metadata log of one node, and what follows it. It is the `RaftListener` of the node's `RaftClient`.

    Use: construct, subscribe to ``publisher``, `open`, run `run` in a nursery, `wait_caught_up`; `close` at the end.

    Args:
        config: gives the node's id, its roles, the directories and the quorum.
        cluster_id: the cluster that new data directories join. By default a node without other voters creates a
            new cluster, and any other node needs formatted directories.
        follower: does the slow work for a change, such as creating logs.
        endpoints: returns the addresses of this node's controller listeners once they are bound; the configured ones
            by default.
        new_client: makes the client of the quorum.
        elects_at_once: see `RaftConfig`.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        cluster_id: str | None = None,
        follower: MetadataFollower | None = None,
        endpoints: Callable[[], Sequence[VoterEndpoint]] | None = None,
        new_client: NewRaftClient = quorum_client,
        elects_at_once: bool = False,
    ) -> None:
        self.publisher = MetadataPublisher()
        self.loader = MetadataLoader(self.publisher)
        self.bootstrap_records: list[Struct] = []
        """The first records of a new cluster, from ``bootstrap.checkpoint``; empty without the file."""
        self._world = world
        self._config = config
        self._wanted_cluster_id = cluster_id
        self._follower = follower
        self._endpoints = endpoints
        self._new_client = new_client
        self._elects_at_once = elects_at_once
        self.controller: MetadataLogListener | None = None
        """The controller that takes over whenever this node leads; set before `run`."""
        self._opened: _Opened | None = None
        self._leader = LeaderAndEpoch(None, 0)
        self._term: int | None = None
        self._last_term = 0
        self._is_handed_over = False
        self._snapshot: SnapshotId | None = None
        self._caught_up = trio.Event()
        self._start_error: KafkaError | None = None
        self._woken = trio.Event()
        self.on_leader_change: Callable[[], None] | None = None
        """Called when the quorum has another leader, or its leader became known."""

    # Facts

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self.loader.image

    @property
    def identity(self) -> ClusterIdentity:
        """Cluster id, node id and the ids of the data directories. Known after `open`."""
        return self._parts.identity

    @property
    def cluster_id(self) -> str:
        """The cluster's id. Known after `open`."""
        return self.identity.cluster_id

    @property
    def is_open(self) -> bool:
        """Whether `open` has succeeded."""
        return self._opened is not None

    @property
    def leader_node(self) -> Node | None:
        """The address of the quorum's leader; None while it is unknown."""
        return None if self._opened is None else self._opened.raft.leader_endpoint()

    @property
    def raft(self) -> RaftClient:
        """The node's client of the quorum. Known after `open`."""
        return self._parts.raft

    @property
    def files(self) -> MetadataLogFiles:
        """The log on disk. Known after `open`."""
        return self._parts.files

    @property
    def snapshots(self) -> SnapshotGenerator:
        """Takes snapshots of the committed image. Known after `open`."""
        return self._parts.snapshots

    @property
    def metadata_end(self) -> int:
        """The offset before which the metadata is committed, and on the disk of this node."""
        return min(self.image.offset + 1, self.files.flushed_offset)

    @property
    def kraft_version(self) -> int:
        """The level of ``kraft.version``; 0 before `open`."""
        return 0 if self._opened is None else self._opened.raft.kraft_version

    @property
    def is_stuck(self) -> bool:
        """See `RaftClient.is_stuck`."""
        return self._opened is not None and self._opened.raft.is_stuck

    @property
    def ignores_static_voters(self) -> bool:
        """Whether ``controller.quorum.voters`` is set, and the metadata log has the voters instead (KIP-853)."""
        return bool(self._config.quorum_voters) and self.kraft_version > 0

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter: everything in its log is committed once it leads."""
        parts = self._parts
        return (
            parts.quorum.can_vote and parts.raft.failure is None and parts.raft.voters.is_only_voter(parts.quorum.key)
        )

    def _quorum(self, identity: ClusterIdentity) -> RaftConfig:
        config = self._config
        endpoints = controller_endpoints(config) if self._endpoints is None else self._endpoints()
        return raft_config(
            config,
            identity.cluster_id,
            identity.directory_ids[config.metadata_directory],
            endpoints,
            elects_at_once=self._elects_at_once,
        )

    @property
    def _parts(self) -> _Opened:
        if self._opened is None:
            raise IllegalStateError("the metadata log is not open")
        return self._opened

    # Life

    async def open(self, *, without: Collection[str] = (), committed: int = 0) -> None:
        """Open the data directories and the metadata log. Blocking work runs in a thread.

        A node without other voters publishes the image of its log at once.

        Args:
            without: unusable data directories, which are ignored.
            committed: the offset up to which the metadata is known to be committed: `metadata_end` of an earlier run.

        Raises:
            ConfigurationError: the data directory of the metadata log cannot be used or is not formatted, or one
                belongs to another node or cluster. ``identity.failed`` has the other unusable directories.
            UnsupportedVersionError: the log has unknown features.
            KafkaStorageError: the log cannot be read or written, or is damaged (`DamagedLogError`).
        """
        identity, files = await self._world.run_in_thread(self._open_files, frozenset(without), committed)
        state = QuorumStateFile(self._world.storage, files.directory)
        try:
            quorum = self._quorum(identity)
            raft = self._new_client(self._world, quorum, files, state, self)
        except (CorruptRecordError, ProtocolError) as error:
            raise files.damaged(f"{files.directory}: {error}") from error
        self._opened = _Opened(identity, quorum, files, raft, SnapshotGenerator(self._world, self._config, files, raft))
        await self._load_newest_snapshot()
        self.snapshots.begin(replayed_bytes=files.bytes_since(self.loader.next_offset))
        if files.begins_after_damage:
            self.snapshots.need()  # the log and the only snapshot that leads up to it are needed until then
        if self.is_alone:  # everything in the log of the only voter is committed once it leads
            while change := await self._in_thread(
                lambda: _finished(self.loader.next_change(lambda offset: files.read_all(from_offset=offset)))
            ):
                self._publish(change)
        self.publisher.subscribe(self.snapshots.metadata_changed)

    def _open_files(self, without: frozenset[str], committed: int) -> tuple[ClusterIdentity, MetadataLogFiles]:
        config, world = self._config, self._world
        usable = [path for path in config.data_directories if path.rstrip("/") not in without]
        directory = config.metadata_directory
        alone = not has_other_nodes(config)
        identity = open_directories(
            world.storage,
            list(dict.fromkeys((*usable, directory))),
            config.node_id,
            new_id=world.uuid,
            cluster_id=self._wanted_cluster_id,
            needed=directory,
            must_be_formatted=not alone and self._wanted_cluster_id is None,
        )
        log_config = KEEP_ALL.with_values(
            {"segment.bytes": config.metadata_log_segment_bytes, "segment.ms": config.metadata_log_segment_ms}
        )
        now_ms = world.wall_ms()
        try:
            self.bootstrap_records = read_bootstrap_records(world.storage, directory)
            if alone and not config.quorum_voters:
                format_metadata_directory(world.storage, directory, self._quorum(identity).voter, now_ms=now_ms)
            files = MetadataLogFiles(
                world.storage,
                directory,
                now_ms=now_ms,
                config=log_config,
                committed=committed,
                can_vote=config.is_controller,
            )
            files.reconcile(alone=alone, now_ms=now_ms)
            if files.end_offset < committed:
                logger.error(
                    "%s ends at offset %d, but had the records up to offset %d before. They are fetched from the "
                    "controllers again.",
                    files.directory, files.end_offset, committed,
                )  # fmt: skip
        except OSError as error:
            raise KafkaStorageError(f"{directory}: {error}") from error
        return identity, files

    async def run(self) -> None:
        """Take part in the quorum and follow the metadata log until cancelled.

        Raises:
            KafkaStorageError: committed metadata cannot be read.
            UnsupportedVersionError: the cluster has reached a feature level that this software does not know.
        """
        parts = self._parts
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(parts.raft.run)
                nursery.start_soon(parts.snapshots.run)
                nursery.start_soon(self._follow)
        finally:
            self._end_term()

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was known to be committed when the node started has been published."""
        return self._caught_up.is_set() and self._start_error is None

    async def wait_caught_up(self) -> None:
        """Wait until everything that is known to be committed is published.

        Raises:
            KafkaStorageError: this node leads the quorum, and could not write its log before.
        """
        await self._caught_up.wait()
        if self._start_error is not None:
            raise self._start_error.fresh_copy()

    async def close(self) -> None:
        """Close the log. A disk failure is only logged: committed records are synced already. A second call does
        nothing."""
        parts = self._opened
        if parts is None or parts.closed:
            return
        parts.closed = True
        with trio.CancelScope(shield=True):
            try:
                await self._world.run_in_thread(parts.files.close)
            except (OSError, KafkaError) as error:
                logger.error("Metadata log %s: cannot be closed cleanly: %s", parts.files.directory, error)

    # Events of the quorum (`RaftListener`)

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """See `RaftListener`."""
        self._leader = leader
        if self.on_leader_change is not None:
            self.on_leader_change()
        if self._term is not None and not (leader.epoch == self._term and leader.is_leader(self._config.node_id)):
            self._end_term()
        self._woken.set()

    def advanced(self, high_watermark: int) -> None:
        """See `RaftListener`."""
        if self._term is not None and self.controller is not None:
            self.controller.committed(high_watermark)
        self._woken.set()

    def load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """See `RaftListener`."""
        self._snapshot = snapshot_id
        self._woken.set()

    def snapshot_needed(self) -> None:
        """See `RaftListener`."""
        self.snapshots.need()

    def rolled_back(self, error: KafkaError) -> None:
        """See `RaftListener`."""
        if self._term is not None and self.controller is not None:
            self.controller.rolled_back(error)
        if not self._caught_up.is_set():
            self._start_error = error
            self._caught_up.set()

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is not None and self.controller is not None:
            self.controller.lost_leadership(term)

    def term_ended(self) -> None:
        """Follow the log again: the controller has published the last committed change of its term."""
        self._is_handed_over = False
        self._woken.set()

    def publish_own(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Publish a committed change that this node made as the active controller."""
        self.loader.publish_own(delta, image)

    # Following

    async def _follow(self) -> None:
        while True:
            self._woken = trio.Event()
            if not self._is_handed_over:
                await self._catch_up()
            await self._woken.wait()

    async def _catch_up(self) -> None:
        """Publish everything that is committed; hand over then, if this node leads."""
        raft = self.raft
        while not self._is_handed_over:
            if self._snapshot is not None:
                await self._load_newest_snapshot()
            change = await self._in_steps()
            if change is not None:
                await self._prepare_and_publish(change)
                continue
            if 0 <= raft.high_watermark <= self.loader.next_offset and not self._caught_up.is_set():
                self._caught_up.set()
            if self._may_lead():
                self._hand_over()
            return

    async def _in_steps(self) -> LoadedChange | None:
        try:
            return await run_within_budget(self.loader.next_change(self.raft.read_committed))
        except (ValueError, ProtocolError) as error:
            raise KafkaStorageError(f"{self.files.directory}: {error}") from error

    def _may_lead(self) -> bool:
        """Whether this node leads an epoch whose first record is committed, and everything before it is published."""
        raft = self.raft
        return (
            self.controller is not None
            and self._leader.is_leader(self._config.node_id)
            and self._leader.epoch > self._last_term
            and 0 <= raft.epoch_start_offset < min(self.loader.next_offset, raft.high_watermark)
        )

    def _hand_over(self) -> None:
        assert self.controller is not None
        self._is_handed_over = True
        self._term = self._last_term = self._leader.epoch
        self.controller.became_leader(self._term, self.loader.image)

    async def _load_newest_snapshot(self) -> None:
        """Load the newest snapshot of the log, if it is newer than the image."""
        self._snapshot, files = None, self.files
        newest = files.latest_snapshot_id()
        if newest is None or newest.end_offset < files.start_offset:
            return
        batches = (await self._in_thread(lambda: files.snapshots.read(newest))).batches
        try:
            change = await run_within_budget(self.loader.load_snapshot(batches, newest))
        except ValueError as error:
            raise KafkaStorageError(f"{files.directory}/{newest.file_name}: {error}") from error
        if change is not None:
            await self._prepare_and_publish(change)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Read the log in a thread. Raises `KafkaStorageError`."""
        files = self.files
        try:
            return await self._world.run_in_thread(function)
        except CorruptRecordError as error:
            raise files.damaged(f"{files.directory}: {error}") from error
        except (OSError, ValueError, ProtocolError) as error:
            raise KafkaStorageError(f"{files.directory}: {error}") from error

    async def _prepare_and_publish(self, change: LoadedChange) -> None:
        await run_within_budget(self.publisher.prepare(change.delta, change.image))
        if self._follower is not None:
            await self._follower.prepare(change.delta, change.image)
        self._publish(change)
        if self._follower is not None:
            await self._follower.settle()

    def _publish(self, change: LoadedChange) -> None:
        if change.delta.features_changed:
            features.check(change.image)
        self.loader.publish(change.delta, change.image)


@dataclass(slots=True)
class _Opened:
    """The parts of a node's metadata that exist while its directories are open."""

    identity: ClusterIdentity
    quorum: RaftConfig
    files: MetadataLogFiles
    raft: RaftClient
    snapshots: SnapshotGenerator
    closed: bool = False


def _finished(steps: Generator[int, None, T]) -> T:
    """Run all steps without a pause, in a thread."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
