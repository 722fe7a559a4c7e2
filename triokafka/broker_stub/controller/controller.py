"""The active controller of a quorum of one: a facade over its state, its event queue and its periodic tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import Compute, EventQueue, Follower
from triokafka.broker_stub.controller.hand_over import hand_over
from triokafka.broker_stub.controller.leader_balancing import LeaderBalancing
from triokafka.broker_stub.controller.local_metadata_log import LocalMetadataLog, begin_epoch, load
from triokafka.broker_stub.controller.meta_properties import ClusterIdentity, open_directories
from triokafka.broker_stub.controller.metadata_log import MetadataLogListener
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.session_fencing import SessionFencing
from triokafka.broker_stub.controller.snapshot_generator import SnapshotGenerator
from triokafka.broker_stub.controller.unclean_elections import UncleanElections
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.snapshots import Quorum
from triokafka.broker_stub.raft.metadata_log_files import KEEP_ALL, MetadataLogFiles
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.controller.quorum import QuorumDescription

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    """The active controller of a cluster whose only voter is this node.

    Use: construct, subscribe to ``publisher``, ``await start()``, run `run` in a nursery, then have the broker
    register. A broker reaches it through a `ControllerGateway`.

    ``state`` decides about changes, and has the images.

    Args:
        config: gives the node's id, the directories and the defaults.
        cluster_id: the cluster that new data directories join; None creates a new cluster.
        follower: does the slow work after a change, such as creating logs.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        cluster_id: str | None = None,
        follower: Follower | None = None,
    ) -> None:
        self.world = world
        self.config = config
        self.kraft_version = 0
        self.publisher = MetadataPublisher()
        self.state = ControllerState(config, pick=world.random.randrange, new_id=world.uuid)
        self._follower = follower
        self._wanted_cluster_id = cluster_id
        self._running: _Running | None = None
        self._identity: ClusterIdentity | None = None

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self.state.committed

    @property
    def metadata_end(self) -> int:
        """The offset before which the metadata is committed, and on disk."""
        return self.state.committed.offset + 1

    @property
    def identity(self) -> ClusterIdentity:
        """Cluster id, node id and the ids of the data directories. Known after `start`."""
        if self._identity is None:
            raise _not_started()
        return self._identity

    @property
    def cluster_id(self) -> str:
        """The cluster's id. Known after `start`."""
        return self.identity.cluster_id

    @property
    def quorum(self) -> QuorumDescription:
        """The state of the metadata quorum."""
        from triokafka.broker_stub.controller.quorum import QuorumDescription

        voter, state = self._quorum(), self.state
        return QuorumDescription(
            node_id=voter.node_id,
            directory_id=voter.directory_id,
            epoch=state.epoch,
            committed_offset=state.committed.offset,
            end_offset=self._parts.files.end_offset,
            endpoints=voter.endpoints,
        )

    # Operations

    async def submit(self, name: str, compute: Compute[T], *, timeout_ms: int | None = None) -> T:
        """See `EventQueue.submit`."""
        return await self._parts.queue.submit(name, compute, timeout_ms=timeout_ms)

    async def hand_over(self, topic: str, partition: int, to: int) -> int:
        """Make a broker in sync the leader of a partition in a new epoch; return its id. See `hand_over.hand_over`."""
        return await self.submit("HandOver", lambda image: hand_over(image, topic, partition, to))

    async def fence_broker(self, broker_id: int) -> None:
        """Fence a broker that has stopped; do nothing if it is not registered or already fenced."""

        def fence(image: MetadataImage) -> Outcome[None]:
            broker = image.brokers.get(broker_id)
            gone = broker is None or broker.fenced
            return Outcome([] if broker is None or gone else self.state.cluster.fence(image, broker), None)

        await self.submit("FenceBroker", fence)

    async def take_snapshot(self) -> int:
        """See `SnapshotGenerator.take`."""
        return await self._parts.snapshots.take()

    # Life

    async def start(self, *, without: Collection[str] = (), committed: int = 0) -> frozenset[UUID]:
        """Open the data directories and the metadata log, replay it, and begin an epoch as its leader.

        Returns, once the first image is published, the ids of the topics that the log removed: their folders may still
        exist. Blocking work runs in a thread.

        Args:
            without: unusable data directories, which are ignored.
            committed: the offset up to which the metadata is known to be committed: `metadata_end` of an earlier run.

        Raises:
            ConfigurationError: the data directory of the metadata log cannot be used, or one belongs to another node or
                cluster. ``identity.failed`` has the other unusable directories.
            UnsupportedVersionError: the log has unknown features.
            KafkaStorageError: the log cannot be read or written, or is damaged (`DamagedLogError`).
        """
        world, config, state = self.world, self.config, self.state
        files, replayed_from, removed_topics = await world.run_in_thread(self._load, frozenset(without), committed)
        publish, follower = self.publisher.publish, self._follower
        made: list[LocalMetadataLog] = []

        def new_log(listener: MetadataLogListener) -> LocalMetadataLog:
            made.append(LocalMetadataLog(world, files, state.epoch, listener))
            return made[0]

        queue = EventQueue(world, state, new_log, publish, follower=follower)
        replayed_bytes = files.bytes_since(replayed_from)
        snapshots = SnapshotGenerator(
            world, config, files, made[0], self._quorum(), state.committed, replayed_bytes=replayed_bytes
        )
        self._running = _Running(files, made[0], queue, snapshots)
        state.cluster.begin(state.committed, now=world.now(), own_id=config.node_id, cluster_id=self.cluster_id)
        logger.info(
            "leads the metadata quorum of cluster %s in epoch %d, %d topics, next offset %d",
            self.cluster_id,
            state.epoch,
            len(state.committed.topics),
            files.end_offset,
        )
        publish(MetadataDelta.from_nothing(state.committed), state.committed)
        self.publisher.subscribe(snapshots.metadata_changed)
        return removed_topics

    def _load(self, without: frozenset[str], committed: int) -> tuple[MetadataLogFiles, int, frozenset[UUID]]:
        """Load the metadata from disk, and begin an epoch.

        Also returns the offset at which the replay of the log began, and the ids of the topics that it removed.
        """
        config, world = self.config, self.world
        usable = [path for path in config.data_directories if path.rstrip("/") not in without]
        self._identity = open_directories(
            world.storage,
            list(dict.fromkeys((*usable, config.metadata_directory))),
            config.node_id,
            new_id=world.uuid,
            cluster_id=self._wanted_cluster_id,
            needed=config.metadata_directory,
        )
        log_config = KEEP_ALL.with_values(
            {"segment.bytes": config.metadata_log_segment_bytes, "segment.ms": config.metadata_log_segment_ms}
        )
        now_ms = world.wall_ms()
        files = MetadataLogFiles(
            world.storage, config.metadata_directory, now_ms=now_ms, config=log_config, committed=committed
        )
        replay, replayed_from = load(files, now_ms)
        features.check(replay.image)
        first = not replay.image.features
        self.kraft_version = features.INITIAL_KRAFT_VERSION if first else replay.kraft_version
        first_min_insync_replicas = (config.text(features.MIN_INSYNC_REPLICAS) or "1") if first else None
        image = begin_epoch(
            files,
            QuorumStateFile(world.storage, files.directory),
            replay.image,
            self._quorum(),
            now_ms=world.wall_ms(),
            first_min_insync_replicas=first_min_insync_replicas,
        )
        self.state.load(image)
        return files, replayed_from, frozenset(replay.removed_topics)

    def _quorum(self) -> Quorum:
        config = self.config
        return Quorum(
            config.node_id,
            self.identity.directory_ids[config.metadata_directory],
            self.kraft_version,
            [(name, "localhost", 0) for name in config.controller_listener_names],
        )

    @property
    def _parts(self) -> _Running:
        if self._running is None:
            raise _not_started()
        return self._running

    async def run(self) -> None:
        """Process operations, and do the controller's periodic work, until `close`; run it in a nursery after `start`.

        If cancelled, waiting callers get a `NotControllerError`.
        """
        parts, state, config = self._parts, self.state, self.config
        timeout = config.broker_session_timeout_ms / 1000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.log.run)
            nursery.start_soon(parts.snapshots.run)
            nursery.start_soon(SessionFencing(self.world, state, parts.queue, timeout=timeout).run)
            if config.auto_leader_rebalance_enable:
                interval = config.leader_imbalance_check_interval_seconds
                percentage = config.leader_imbalance_per_broker_percentage
                nursery.start_soon(LeaderBalancing(state, parts.queue, interval=interval, percentage=percentage).run)
            unclean_interval = config.unclean_leader_election_interval_ms / 1000
            nursery.start_soon(UncleanElections(state, parts.queue, interval=unclean_interval).run)
            await parts.queue.run()
            nursery.cancel_scope.cancel()

    async def close(self) -> None:
        """Fail waiting callers and close the log. A second call does nothing.

        A disk failure is only logged: every change was synced when it was committed, and the next start recovers.
        """
        parts = self._running
        if parts is None or parts.closed:
            return
        parts.closed = True
        parts.queue.stop()
        with trio.CancelScope(shield=True):
            try:
                await self.world.run_in_thread(parts.files.close)
            except (OSError, errors.KafkaError) as error:
                logger.error("Metadata log %s: cannot be closed cleanly: %s", parts.files.directory, error)

    def clock_jumped(self) -> None:
        """Extend the sessions of brokers after a jump of the world's clock."""
        self.state.cluster.resume(self.world.now())


@dataclass(slots=True)
class _Running:
    """The parts of a controller that exist once it has started."""

    files: MetadataLogFiles
    log: LocalMetadataLog
    queue: EventQueue
    snapshots: SnapshotGenerator
    closed: bool = False


def _not_started() -> errors.IllegalStateError:
    return errors.IllegalStateError("the controller was not started")
