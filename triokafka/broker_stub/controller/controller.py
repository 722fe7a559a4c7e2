"""The controller of a quorum of one: its event queue, from a request to a committed change and its answer.

One task takes operations off a bounded queue. Each looks at the newest image and yields records and a response; the
records of all that were waiting are appended to the metadata log and synced together, which commits them; then they
become the image, publishers are told, and only then do the answers go out. A failed append leaves the committed image
as it is, takes the batches back and answers with an error.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import features
from triokafka.broker_stub.controller.cluster import BrokerHeartbeat, BrokerRegistration, HeartbeatReply
from triokafka.broker_stub.controller.configuration import ConfigurationControl
from triokafka.broker_stub.controller.delta import MetadataDelta
from triokafka.broker_stub.controller.describe import describe_configs
from triokafka.broker_stub.controller.image import EndpointImage, MetadataImage
from triokafka.broker_stub.controller.meta_properties import ClusterIdentity, open_directories
from triokafka.broker_stub.controller.metadata_log import MetadataLog
from triokafka.broker_stub.controller.outcome import ItemError, Outcome
from triokafka.broker_stub.controller.producer_ids import ProducerIdBlock
from triokafka.broker_stub.controller.records import encode_leader_change, encode_records
from triokafka.broker_stub.controller.replay import LogReplay
from triokafka.broker_stub.controller.state import ControllerState, StagedChange
from triokafka.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from triokafka.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from triokafka.protocol.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from triokafka.protocol.message import Struct
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")
Publisher = Callable[[MetadataDelta, MetadataImage], None]
Denials = Mapping[tuple[int, str], ItemError]

MAX_WAITING: Final = 1000
"""Operations that may wait in the queue; more wait for room in it."""
_MAX_TOGETHER: Final = 64
"""Operations that are committed with one sync."""


class _Operation(Generic[T]):
    """One entry of the queue, and the place where its caller waits."""

    def __init__(self, name: str, compute: Callable[[MetadataImage], Outcome[T]], expires_at: float) -> None:
        self.name = name
        self.compute = compute
        self.expires_at = expires_at
        self.abandoned = False
        self._done = trio.Event()
        self._response: T | None = None
        self._error: Exception | None = None

    def succeed(self, response: T) -> None:
        self._response = response
        self._done.set()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._done.set()

    async def result(self) -> T:
        try:
            await self._done.wait()
        except BaseException:
            # Nobody waits any more; what has not begun is left undone, what has goes on.
            self.abandoned = True
            raise
        if self._error is not None:
            raise self._error
        response: Any = self._response
        return response  # type: ignore[no-any-return]


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
        self._broken: Exception | None = None
        self._broker_epoch = -1
        self._send, self._receive = trio.open_memory_channel[_Operation[Any]](MAX_WAITING)
        self._closed = False

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
        delta = MetadataDelta.from_nothing(state.committed)
        logger.info(
            "leads the metadata quorum of cluster %s in epoch %d, %d topics, next offset %d",
            self.cluster_id,
            state.epoch,
            len(state.committed.topics),
            log.end_offset,
        )
        self._publish(delta, state.committed)

    def _load(self) -> None:
        config, world = self._config, self._world
        directories = list(dict.fromkeys((*config.data_directories, config.metadata_directory)))
        self._identity = open_directories(
            world.storage, directories, config.node_id, new_id=world.uuid, cluster_id=self._wanted_cluster_id
        )
        self._log = MetadataLog(world.storage, config.metadata_directory, now_ms=world.wall_ms())
        replay = LogReplay()
        try:
            replay.replay(self._log.read_all())
        except (ValueError, errors.ProtocolError) as error:
            raise errors.KafkaStorageError(f"{self._log.directory}: {error}") from error
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
                log.append(self._encode(records, log.end_offset, epoch, features.INITIAL_LEVELS), now_ms=now_ms)
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

    def _encode(self, records: Sequence[Struct], base_offset: int, epoch: int, levels: Mapping[str, int]) -> bytes:
        return encode_records(
            records,
            base_offset=base_offset,
            epoch=epoch,
            timestamp_ms=self._world.wall_ms(),
            metadata_version=levels.get(features.METADATA_VERSION, features.SUPPORTED[features.METADATA_VERSION][0]),
        )

    async def run(self) -> None:
        """Work off the queue until `close`; run it in a nursery after `start`. Cancelling it fails whoever waits."""
        operations: list[_Operation[Any]] = []
        try:
            while True:
                try:
                    operations = [await self._receive.receive()]
                except (trio.EndOfChannel, trio.ClosedResourceError):
                    return
                while len(operations) < _MAX_TOGETHER:
                    try:
                        operations.append(self._receive.receive_nowait())
                    except (trio.WouldBlock, trio.EndOfChannel):
                        break
                await self._process(operations)
                operations = []
        finally:
            self._stop(operations)

    def _stop(self, unfinished: Sequence[_Operation[Any]] = ()) -> None:
        self._closed = True
        self._send.close()
        for operation in unfinished:
            operation.fail(_stopped())
        while True:
            try:
                self._receive.receive_nowait().fail(_stopped())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._receive.close()

    async def close(self) -> None:
        """Fail whoever waits and close the log. A second call does nothing."""
        self._stop()
        log, self._log = self._log, None
        if log is not None:
            with trio.CancelScope(shield=True):
                await self._world.run_in_thread(log.close)

    # The queue

    async def _submit(
        self, name: str, compute: Callable[[MetadataImage], Outcome[T]], timeout_ms: int | None = None
    ) -> T:
        expires_at = float("inf") if timeout_ms is None else self._world.now() + max(timeout_ms, 0) / 1000
        operation = _Operation(name, compute, expires_at)
        try:
            await self._send.send(operation)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise _stopped() from None
        return await operation.result()

    async def _process(self, operations: Sequence[_Operation[Any]]) -> None:
        """Stage what each operation yields, commit all of it together, then publish and answer one by one."""
        state = self._started()
        staged: list[tuple[_Operation[Any], StagedChange | None, Any]] = []
        for operation in operations:
            if operation.abandoned:
                continue
            try:
                if self._broken is not None:
                    raise errors.KafkaStorageError(f"the metadata log cannot be written: {self._broken}")
                if operation.expires_at <= self._world.now() and operation.expires_at != float("inf"):
                    raise errors.RequestTimedOutError(f"{operation.name}: its time was over before its turn")
                outcome = operation.compute(state.image)
                change = state.stage(outcome.records) if outcome.records else None
            except errors.BrokerResponseError as error:
                operation.fail(error)
            except Exception as error:
                logger.exception("%s failed", operation.name)
                operation.fail(error)
            else:
                staged.append((operation, change, outcome.response))
        changes = [change for _, change, _ in staged if change is not None]
        if changes:
            # Once begun it must be known whether it was committed, so cancelling waits for it.
            with trio.CancelScope(shield=True):
                failure = await self._write(changes)
            if failure is not None:
                state.roll_back()
                for operation, _, _ in staged:
                    operation.fail(errors.KafkaStorageError(f"the metadata log could not be written: {failure}"))
                return
        for operation, change, response in staged:
            if change is not None:
                state.commit(change)
                self._publish(change.delta, change.image)
            operation.succeed(response)

    async def _write(self, changes: Sequence[StagedChange]) -> Exception | None:
        """Append and sync; on failure take everything back, and return why."""
        state, log = self._started(), self._open_log()
        now_ms = self._world.wall_ms()
        committed_end = state.committed.offset + 1
        try:
            for change in changes:
                log.append(
                    self._encode(change.records, change.base_offset, state.epoch, change.image.features),
                    now_ms=now_ms,
                )
            job = log.begin_sync()
            if job is not None:
                await self._world.run_in_thread(job.run)
                log.synced(job)
        except (OSError, errors.KafkaError) as failure:
            logger.error("the metadata log in %s could not be written: %s", log.directory, failure)
            try:
                log.truncate_to(committed_end, now_ms=now_ms)
            except (OSError, errors.KafkaError) as error:
                # What is on the disk now is not known: to go on could commit what was answered with an error.
                logger.critical("the metadata log in %s could not be cut back: %s", log.directory, error)
                self._broken = failure
            return failure
        return None

    # Operations

    async def create_topics(
        self, request: CreateTopicsRequest, *, hidden_configs: frozenset[str] = frozenset()
    ) -> CreateTopicsResponse:
        """Create topics; see `ReplicationControl.create_topics`."""
        control = self._started().replication
        return await self._submit(
            "CreateTopics",
            lambda image: control.create_topics(image, request, hidden_configs=hidden_configs),
            request.timeout_ms,
        )

    async def delete_topics(self, request: DeleteTopicsRequest, *, version: int = 6) -> DeleteTopicsResponse:
        """Delete topics; see `ReplicationControl.delete_topics`."""
        control = self._started().replication
        return await self._submit(
            "DeleteTopics", lambda image: control.delete_topics(image, request, version=version), request.timeout_ms
        )

    async def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions; see `ReplicationControl.create_partitions`."""
        control = self._started().replication
        return await self._submit(
            "CreatePartitions", lambda image: control.create_partitions(image, request), request.timeout_ms
        )

    async def alter_configs(
        self, request: AlterConfigsRequest, *, denied: Denials | None = None
    ) -> AlterConfigsResponse:
        """Replace configuration; see `ConfigurationControl.alter_configs`."""
        control = self._started().configuration
        return await self._submit("AlterConfigs", lambda image: control.alter_configs(image, request, denied=denied))

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, denied: Denials | None = None
    ) -> IncrementalAlterConfigsResponse:
        """Change configuration; see `ConfigurationControl.incremental_alter_configs`."""
        control = self._started().configuration
        return await self._submit(
            "IncrementalAlterConfigs",
            lambda image: control.incremental_alter_configs(image, request, denied=denied),
        )

    def describe_configs(
        self, request: DescribeConfigsRequest, *, denied: Denials | None = None
    ) -> DescribeConfigsResponse:
        """Show configuration from the committed image, without waiting."""
        state = self._started()
        return describe_configs(state.committed, request, state.configuration, self._config, denied=denied)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids for this node's broker."""
        control = self._started().producer_ids
        return await self._submit(
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
        self._broker_epoch = await self._submit(
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

        return await self._submit("BrokerHeartbeat", compute)


def _stopped() -> errors.NotControllerError:
    return errors.NotControllerError("the controller has stopped")
