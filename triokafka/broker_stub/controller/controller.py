"""The controller of a quorum of one: opens the metadata log as its leader, and offers every operation on the cluster.

An operation is a line that hands a pure function of the image to the event queue; the work is done by those who own the
state (``replication``, ``configuration``, ``cluster``, ``producer_ids``), the commit by ``event_queue``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence

import trio

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import features
from triokafka.broker_stub.controller.cluster import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.broker_stub.controller.configuration import ConfigurationControl
from triokafka.broker_stub.controller.delta import MetadataDelta
from triokafka.broker_stub.controller.describe import describe_configs
from triokafka.broker_stub.controller.event_queue import EventQueue, encode_batch_at
from triokafka.broker_stub.controller.image import EndpointImage, MetadataImage
from triokafka.broker_stub.controller.meta_properties import ClusterIdentity, open_directories
from triokafka.broker_stub.controller.metadata_log import MetadataLog
from triokafka.broker_stub.controller.outcome import ItemError, Outcome
from triokafka.broker_stub.controller.producer_ids import ProducerIdBlock
from triokafka.broker_stub.controller.records import encode_leader_change
from triokafka.broker_stub.controller.replay import LogReplay
from triokafka.broker_stub.controller.state import ControllerState
from triokafka.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from triokafka.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from triokafka.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from triokafka.protocol.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from triokafka.world import World

logger = logging.getLogger(__name__)

Publisher = Callable[[MetadataDelta, MetadataImage], None]
Denials = Mapping[tuple[int, str], ItemError]


class Controller:
    """The active controller of a cluster whose only voter is this node.

    Use: construct, `subscribe` who wants to know, ``await start()``, run `run` in a nursery, then `register_broker`.
    Every awaited method waits until its change is committed and published; when it is cancelled, the change may still
    happen. Each raises `KafkaStorageError` when the metadata log cannot be written (nothing has changed then),
    `RequestTimedOutError` when the request's time was over before its turn, and `NotControllerError` after `close`.

    Args:
        config: gives the node's id, the directories and the defaults.
        cluster_id: the cluster that new data directories join; None makes a new one.
    """

    def __init__(self, world: World, config: BrokerConfig, *, cluster_id: str | None = None) -> None:
        self._world = world
        self._config = config
        self._wanted_cluster_id = cluster_id
        self._identity: ClusterIdentity | None = None
        self._state: ControllerState | None = None
        self._log: MetadataLog | None = None
        self._publishers: list[Publisher] = []
        self._kraft_version = 0
        self._queue: EventQueue | None = None
        self._broker_epoch = -1

    # What is known

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._started().committed

    @property
    def identity(self) -> ClusterIdentity:
        """Cluster id, node id and the ids of the data directories; there after `start`."""
        if self._identity is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._identity

    @property
    def cluster_id(self) -> str:
        """The cluster's id; there after `start`."""
        return self.identity.cluster_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of this node's registration; -1 before `register_broker`."""
        return self._broker_epoch

    @property
    def configuration(self) -> ConfigurationControl:
        """Reads effective configuration from an image."""
        return self._started().configuration

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """The feature levels for ApiVersions."""
        return features.finalized(self.image, self._kraft_version)

    def _started(self) -> ControllerState:
        if self._state is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._state

    def _running(self) -> EventQueue:
        if self._queue is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._queue

    def subscribe(self, publisher: Publisher) -> None:
        """Tell ``publisher`` of every committed change, in order, as delta and image.

        If there is an image already, it is told of that at once, as a change from nothing.
        """
        self._publishers.append(publisher)
        if self._state is not None:
            self._tell(publisher, MetadataDelta.from_nothing(self._state.committed), self._state.committed)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for publisher in self._publishers:
            self._tell(publisher, delta, image)

    def _tell(self, publisher: Publisher, delta: MetadataDelta, image: MetadataImage) -> None:
        try:
            publisher(delta, image)
        except Exception:
            # The change is committed; one who cannot follow must not keep the others from it.
            logger.exception("%r could not follow the metadata at offset %d", publisher, image.offset)

    # Life

    async def start(self) -> None:
        """Open the data directories and the metadata log, replay it, and begin an epoch as its leader.

        Returns when the first image is there and published. Blocking work runs in a thread.

        Raises:
            ConfigurationError: a data directory cannot be used, or belongs to another node or cluster.
            UnsupportedVersionError: the log has features that are not known here.
            KafkaStorageError: the log cannot be read or written.
        """
        await self._world.run_in_thread(self._load)
        state, log = self._started(), self._open_log()
        first = not state.committed.features
        node_id = self._config.node_id
        if first:
            self._kraft_version = features.INITIAL_KRAFT_VERSION
        directory_id = self.identity.directory_ids[self._config.metadata_directory]
        await self._world.run_in_thread(self._begin_epoch, first, node_id, directory_id)
        self._queue = EventQueue(self._world, state, log, self._publish)
        logger.info(
            "leads the metadata quorum of cluster %s in epoch %d, %d topics, next offset %d",
            self.cluster_id,
            state.epoch,
            len(state.committed.topics),
            log.end_offset,
        )
        self._publish(MetadataDelta.from_nothing(state.committed), state.committed)

    def _load(self) -> None:
        config, world = self._config, self._world
        directories = list(dict.fromkeys((*config.data_directories, config.metadata_directory)))
        self._identity = open_directories(
            world.storage, directories, config.node_id, new_id=world.uuid, cluster_id=self._wanted_cluster_id
        )
        self._log = MetadataLog(world.storage, config.metadata_directory, now_ms=world.wall_ms())
        replay = _replay(self._log)
        features.check(replay.image)
        self._kraft_version = replay.kraft_version
        self._state = ControllerState(config, self._identity.cluster_id, pick=world.random.randrange, new_id=world.uuid)
        self._state.load(replay.image)

    def _begin_epoch(self, first: bool, node_id: int, directory_id: uuid.UUID) -> None:
        """Claim a new epoch and open it in the log; a new log also gets the cluster's first records."""
        state, log = self._started(), self._open_log()
        epoch = max(log.read_epoch(), state.committed.epoch) + 1
        now_ms = self._world.wall_ms()
        replay = LogReplay(state.committed)
        try:
            log.write_epoch(epoch, node_id, directory_id, kraft_version=self._kraft_version)
            opening = encode_leader_change(
                node_id,
                directory_id,
                base_offset=log.end_offset,
                epoch=epoch,
                timestamp_ms=now_ms,
                kraft_version=self._kraft_version if first else 0,
                endpoints=[(name, "localhost", 0) for name in self._config.controller_listener_names],
            )
            start = log.end_offset
            log.append(opening, now_ms=now_ms)
            if first:
                records = features.initial_records()
                log.append(
                    encode_batch_at(records, log.end_offset, epoch, now_ms, features.INITIAL_LEVELS), now_ms=now_ms
                )
            job = log.begin_sync()
            if job is not None:
                job.run()
                log.synced(job)
        except OSError as error:
            raise errors.KafkaStorageError(f"{log.directory}: {error}") from error
        replay.replay(log.read_all(from_offset=start))
        state.load(replay.image)

    def _open_log(self) -> MetadataLog:
        if self._log is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._log

    async def run(self) -> None:
        """Work off the queue until `close`; run it in a nursery after `start`. Cancelling it fails whoever waits."""
        await self._running().run()

    async def close(self) -> None:
        """Fail whoever waits and close the log. A second call does nothing."""
        if self._queue is not None:
            self._queue.stop()
        log, self._log = self._log, None
        if log is not None:
            with trio.CancelScope(shield=True):
                await self._world.run_in_thread(log.close)

    # Operations

    async def create_topics(
        self, request: CreateTopicsRequest, *, hidden_configs: frozenset[str] = frozenset()
    ) -> CreateTopicsResponse:
        """Create topics; see `ReplicationControl.create_topics`."""
        control = self._started().replication
        return await self._running().submit(
            "CreateTopics",
            lambda image: control.create_topics(image, request, hidden_configs=hidden_configs),
            timeout_ms=request.timeout_ms,
        )

    async def delete_topics(self, request: DeleteTopicsRequest, *, version: int = 6) -> DeleteTopicsResponse:
        """Delete topics; see `ReplicationControl.delete_topics`."""
        control = self._started().replication
        return await self._running().submit(
            "DeleteTopics",
            lambda image: control.delete_topics(image, request, version=version),
            timeout_ms=request.timeout_ms,
        )

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions; see `ReplicationControl.create_partitions`."""
        control = self._started().replication
        return await self._running().submit(
            "CreatePartitions", lambda image: control.create_partitions(image, request), timeout_ms=request.timeout_ms
        )

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: Denials | None = None
    ) -> AlterConfigsResponse:
        """Replace configuration; see `ConfigurationControl.alter_configs`."""
        control = self._started().configuration
        return await self._running().submit(
            "AlterConfigs", lambda image: control.alter_configs(image, request, denied=denied)
        )

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: Denials | None = None
    ) -> IncrementalAlterConfigsResponse:
        """Change configuration; see `ConfigurationControl.incremental_alter_configs`."""
        control = self._started().configuration
        return await self._running().submit(
            "IncrementalAlterConfigs",
            lambda image: control.incremental_alter_configs(image, request, denied=denied),
        )

    def describe_configs(
        self, request: DescribeConfigsRequest, *, denied: Denials | None = None
    ) -> DescribeConfigsResponse:
        """Show configuration from the committed image, without waiting."""
        state = self._started()
        return describe_configs(state.committed, request, state.configuration, self._config, denied=denied)

    async def alter_client_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        """Change quotas; see `ClientQuotaControl.alter`."""
        control = self._started().client_quotas
        return await self._running().submit("AlterClientQuotas", lambda image: control.alter(image, request))

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids for this node's broker."""
        control = self._started().producer_ids
        return await self._running().submit(
            "AllocateProducerIds",
            lambda image: control.allocate(image, self._config.node_id, self._broker_epoch),
        )

    async def register_broker(
        self, endpoints: Sequence[EndpointImage], *, directories: Sequence[uuid.UUID] | None = None
    ) -> int:
        """Register this node's broker with what it advertises, and unfence it; returns the broker epoch.

        From then on it leads what it can. ``directories`` are the ids of the data directories that are online; all of
        them when None.
        """
        state = self._started()
        known = tuple(self.identity.directory_ids[path] for path in self._config.data_directories)
        registration = BrokerRegistration(
            broker_id=self._config.node_id,
            incarnation_id=self._world.uuid(),
            cluster_id=self.cluster_id,
            endpoints=tuple(endpoints),
            features=features.SUPPORTED,
            rack=self._config.broker_rack,
            directories=known if directories is None else tuple(directories),
        )
        self._broker_epoch = await self._running().submit(
            "RegisterBroker",
            lambda image: state.cluster.register(
                image, registration, now=self._world.now(), next_offset=state.next_offset
            ),
        )
        # The broker is in this process: it knows every image as soon as it is published.
        await self._heartbeat()
        return self._broker_epoch

    async def fence_broker(self) -> None:
        """This node's broker is about to stop: it gives up its leaderships and is fenced. Does nothing twice."""
        if self._broker_epoch >= 0:
            await self._heartbeat(want_fence=True)
            self._broker_epoch = -1

    async def _heartbeat(self, *, want_fence: bool = False) -> HeartbeatReply:
        state, epoch = self._started(), self._broker_epoch

        def compute(image: MetadataImage) -> Outcome[HeartbeatReply]:
            beat = BrokerHeartbeat(self._config.node_id, epoch, image.offset, want_fence=want_fence)
            return state.cluster.heartbeat(image, beat, now=self._world.now())

        return await self._running().submit("BrokerHeartbeat", compute)


def _replay(log: MetadataLog) -> LogReplay:
    """Everything that the directory says, from the newest snapshot on where the log does not begin at its beginning.

    Raises:
        KafkaStorageError: it cannot be read, or records are missing.
    """
    replay = LogReplay()
    start = log.start_offset
    try:
        if start > 0:
            snapshot = log.newest_snapshot()
            if snapshot is None or not start <= snapshot.end_offset <= log.end_offset:
                raise errors.KafkaStorageError(
                    f"the metadata log in {log.directory} begins at offset {start}, and no snapshot leads up to it"
                )
            replay.load(snapshot.batches, end_offset=snapshot.end_offset, epoch=snapshot.epoch)
            start = snapshot.end_offset
        replay.replay(log.read_all(from_offset=start))
    except (OSError, ValueError, errors.ProtocolError) as error:
        raise errors.KafkaStorageError(f"{log.directory}: {error}") from error
    return replay
