"""The controller of a quorum of one: opens the metadata log as its leader, and keeps the cluster going.

Here is its life: loading, the first epoch, the queue that runs its operations, and its own periodic work (fencing
silent brokers, balancing leaders, taking snapshots). A broker's operations are in ``gateway.local``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import elections, feature_updates
from triokafka.broker_stub.controller.configuration import ConfigurationControl
from triokafka.broker_stub.controller.event_queue import Compute, EventQueue, Follower, encode_batch_at
from triokafka.broker_stub.controller.hand_over import hand_over
from triokafka.broker_stub.controller.meta_properties import ClusterIdentity, open_directories
from triokafka.broker_stub.controller.metadata_log import KEEP_ALL, MetadataLog
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import TopicConfig
from triokafka.broker_stub.controller.state import ControllerState
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.records import encode_leader_change
from triokafka.broker_stub.metadata.replay import LogReplay
from triokafka.broker_stub.metadata.snapshots import Quorum, SnapshotSchedule
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.controller.quorum import QuorumDescription

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    """The active controller of a cluster whose only voter is this node.

    Use: construct, subscribe to ``publisher``, ``await start()``, run `run` in a nursery, then have the broker
    register. A broker reaches it through a `ControllerGateway`.

    Args:
        config: gives the node's id, the directories and the defaults.
        cluster_id: the cluster that new data directories join; None makes a new one.
        follower: does the slow work of a change, before and after it is published.
    """

    def __init__(
        self, world: World, config: BrokerConfig, *, cluster_id: str | None = None, follower: Follower | None = None
    ) -> None:
        self.world = world
        self.config = config
        self.kraft_version = 0
        self.publisher = MetadataPublisher()
        self.state = ControllerState(config, pick=world.random.randrange, new_id=world.uuid)
        self._queue: EventQueue | None = None
        self._wanted_cluster_id = cluster_id
        self._identity: ClusterIdentity | None = None
        self._log: MetadataLog | None = None
        self._follower = follower
        self.removed_topics: frozenset[UUID] = frozenset()
        """The ids of topics whose removal is in the log that `start` read. Emptied by whoever has made use of it."""
        self._snapshots = SnapshotSchedule(
            config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
        )
        self._snapshot_due = trio.Event()

    # What is known

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self.state.committed

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
    def configuration(self) -> ConfigurationControl:
        """Reads effective configuration from an image."""
        return self.state.configuration

    @property
    def quorum(self) -> QuorumDescription:
        """The state of the metadata quorum."""
        from triokafka.broker_stub.controller.quorum import QuorumDescription

        state = self.state
        return QuorumDescription(
            node_id=self.config.node_id,
            directory_id=self.identity.directory_ids[self.config.metadata_directory],
            epoch=state.epoch,
            committed_offset=state.committed.offset,
            end_offset=self._open_log().end_offset,
            endpoints=self._controller_endpoints(),
        )

    # Operations

    async def submit(self, name: str, compute: Compute[T], *, timeout_ms: int | None = None) -> T:
        """See `EventQueue.submit`."""
        return await self._running().submit(name, compute, timeout_ms=timeout_ms)

    def topic_config(self, image: MetadataImage) -> TopicConfig:
        """Return a function from a topic's name to its configuration in an image."""
        return partial(self.state.configuration.effective.topic_config, image)

    def _running(self) -> EventQueue:
        if self._queue is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._queue

    async def everybody_in_sync(self) -> int:
        """Take every replica that is up into the in-sync sets; see `in_sync.everybody_in_sync`."""
        from triokafka.broker_stub.controller.in_sync import everybody_in_sync

        return await self.submit("EverybodyInSync", lambda image: everybody_in_sync(image, self.topic_config(image)))

    async def hand_over(self, topic: str, partition: int, to: int | None = None) -> int:
        """Have a broker lead a partition in a new epoch; returns which. See `hand_over.hand_over`."""
        return await self.submit("HandOver", lambda image: hand_over(image, topic, partition, to))

    async def fence_broker(self, broker_id: int) -> None:
        """Fence a broker that is known to be gone; one that is not registered, or fenced already, is fine."""
        cluster = self.state.cluster

        def fence(image: MetadataImage) -> Outcome[None]:
            broker = image.brokers.get(broker_id)
            return Outcome([] if broker is None or broker.fenced else cluster.fence(image, broker), None)

        await self.submit("FenceBroker", fence)

    def all_follow(self, offset: int) -> None:
        """See `ClusterControl.all_follow`."""
        self.state.cluster.all_follow(offset)

    async def fence_stale_broker(self) -> int | None:
        """Fence the broker that was silent for too long, if there is one; returns which."""
        control = self.state.cluster
        return await self.submit("FenceStaleBroker", lambda image: control.fence_stale(image, now=self.world.now()))

    async def balance_leaders(self) -> int:
        """Make preferred replicas leaders again where they can be; returns how many."""

        def compute(image: MetadataImage) -> Outcome[int]:
            records = elections.preferred_leaders(image, self.topic_config(image))
            return Outcome(records, len(records))

        return await self.submit("BalanceLeaders", compute)

    # Life

    async def start(self, *, without: Collection[str] = (), committed: int = 0) -> None:
        """Open the data directories and the metadata log, replay it, and begin an epoch as its leader.

        Returns when the first image is there and published. Blocking work runs in a thread.

        Args:
            without: data directories that cannot be used, and are left alone.
            committed: the offset before which the metadata is known to be committed, from `metadata_end` of an earlier
                run.

        Raises:
            ConfigurationError: the data directory of the metadata log cannot be used, or one belongs to another node or
                cluster. What cannot be used of the others is in ``identity.failed``.
            UnsupportedVersionError: the log has features that are not known here.
            KafkaStorageError: the log cannot be read or written, or is damaged (`DamagedLogError`).
        """
        snapshot_end = await self.world.run_in_thread(self._load, frozenset(without), committed)
        state, log = self.state, self._open_log()
        first = not state.committed.features
        if first:
            self.kraft_version = features.INITIAL_KRAFT_VERSION
        await self.world.run_in_thread(self._begin_epoch, first)
        self._snapshots.taken(log.bytes_since(snapshot_end), self.world.now())
        state.cluster.begin(
            state.committed, now=self.world.now(), own_id=self.config.node_id, cluster_id=self.cluster_id
        )
        self._queue = EventQueue(
            self.world, state, log, self.publisher.publish, appended=self._appended, follower=self._follower
        )
        logger.info(
            "leads the metadata quorum of cluster %s in epoch %d, %d topics, next offset %d",
            self.cluster_id,
            state.epoch,
            len(state.committed.topics),
            log.end_offset,
        )
        self.publisher.publish(MetadataDelta.from_nothing(state.committed), state.committed)

    @property
    def metadata_end(self) -> int:
        """The offset before which the metadata is committed, and on disk."""
        return self.state.committed.offset + 1

    def _load(self, without: frozenset[str], committed: int) -> int:
        config, world = self.config, self.world
        usable = [path for path in config.data_directories if path.rstrip("/") not in without]
        directories = list(dict.fromkeys((*usable, config.metadata_directory)))
        self._identity = open_directories(
            world.storage,
            directories,
            config.node_id,
            new_id=world.uuid,
            cluster_id=self._wanted_cluster_id,
            needed=config.metadata_directory,
        )
        log_config = KEEP_ALL.with_values(
            {"segment.bytes": config.metadata_log_segment_bytes, "segment.ms": config.metadata_log_segment_ms}
        )
        now_ms = world.wall_ms()
        self._log = MetadataLog(
            world.storage, config.metadata_directory, now_ms=now_ms, config=log_config, committed=committed
        )
        replay, snapshot_end = _replay(self._log, now_ms)
        features.check(replay.image)
        self.removed_topics = frozenset(replay.removed_topics)
        self.kraft_version = replay.kraft_version
        self.state.load(replay.image)
        return snapshot_end

    def _begin_epoch(self, first: bool) -> None:
        """Claim a new epoch and open it in the log; a new log also gets the cluster's first records."""
        state, log = self.state, self._open_log()
        node_id = self.config.node_id
        directory_id = self.identity.directory_ids[self.config.metadata_directory]
        epoch = max(log.read_epoch(), state.committed.epoch) + 1
        now_ms = self.world.wall_ms()
        replay = LogReplay(state.committed)
        try:
            log.write_epoch(epoch, node_id, directory_id, kraft_version=self.kraft_version)
            opening = encode_leader_change(
                node_id,
                directory_id,
                base_offset=log.end_offset,
                epoch=epoch,
                timestamp_ms=now_ms,
                kraft_version=self.kraft_version if first else 0,
                endpoints=self._controller_endpoints(),
            )
            start = log.end_offset
            log.append(opening, now_ms=now_ms)
            if first:
                records = feature_updates.initial_records(self.config.text(features.MIN_INSYNC_REPLICAS) or "1")
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

    def _controller_endpoints(self) -> list[tuple[str, str, int]]:
        return [(name, "localhost", 0) for name in self.config.controller_listener_names]

    def _open_log(self) -> MetadataLog:
        if self._log is None:
            raise errors.IllegalStateError("the controller was not started")
        return self._log

    async def run(self) -> None:
        """Work off the queue, and do what is due by itself, until `close`; run it in a nursery after `start`.

        Cancelling it fails whoever waits.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fence_stale_brokers)
            nursery.start_soon(self._take_snapshots)
            if self.config.auto_leader_rebalance_enable:
                nursery.start_soon(self._balance_leaders)
            await self._running().run()
            nursery.cancel_scope.cancel()

    async def close(self) -> None:
        """Fail whoever waits and close the log. A second call does nothing.

        A disk that fails is logged only: every change was synced when it was committed, and the next start recovers.
        """
        if self._queue is not None:
            self._queue.stop()
        log, self._log = self._log, None
        if log is not None:
            with trio.CancelScope(shield=True):
                try:
                    await self.world.run_in_thread(log.close)
                except (OSError, errors.KafkaError) as error:
                    logger.error("the metadata log in %s could not be closed cleanly: %s", log.directory, error)

    def clock_jumped(self) -> None:
        """The world's clock was put forward: no broker was silent because of that."""
        self.state.cluster.resume(self.world.now())

    # What it does by itself

    async def _fence_stale_brokers(self) -> None:
        """Fence brokers as their sessions end, one by one."""
        cluster, timeout = self.state.cluster, self.config.broker_session_timeout_ms / 1000
        while True:
            oldest = cluster.oldest_session(self.image)
            # A session that begins while this sleeps ends no earlier than a whole timeout from now.
            due_at = self.world.now() + timeout if oldest is None else oldest[1]
            await trio.sleep(max(0.0, due_at - self.world.now()))
            now = self.world.now()
            if now > due_at + timeout / 2:
                cluster.resume(now)
                continue
            oldest = cluster.oldest_session(self.image)
            if oldest is not None and oldest[1] < now:
                try:
                    fenced = await self.fence_stale_broker()
                except errors.KafkaError as error:
                    logger.error("a broker that is silent could not be fenced: %s", error)
                    await trio.sleep(timeout)
                else:
                    if fenced is not None:
                        logger.warning("broker %d is fenced: it was silent for more than %g s", fenced, timeout)
            else:
                await trio.sleep(0.001)  # a session is valid up to and including its last moment

    async def _balance_leaders(self) -> None:
        """Give leadership back to preferred replicas where it was lost."""
        while True:
            await trio.sleep(self.config.leader_imbalance_check_interval_seconds)
            if all(partition.leader == partition.preferred_leader for _, partition in self.image.partitions()):
                continue
            try:
                moved = await self.balance_leaders()
            except errors.KafkaError as error:
                logger.error("leaders could not be balanced: %s", error)
            else:
                if moved:
                    logger.info("%d partitions are led by their preferred replica again", moved)

    def _appended(self, size: int) -> None:
        if self._snapshots.appended(size):
            self._snapshot_due.set()

    async def _take_snapshots(self) -> None:
        """Take a snapshot when the schedule says so, and drop what it makes superfluous."""
        while True:
            due_in = self._snapshots.due_in(self.world.now())
            with trio.move_on_after(due_in if self._snapshots.bytes else max(due_in, 1.0)):
                await self._snapshot_due.wait()
            # Set also while a snapshot was being written, which took care of it: else this would never sleep again.
            self._snapshot_due = trio.Event()
            if not self._snapshots.due(self.world.now()):
                if not self._snapshots.due_in(self.world.now()):
                    self._snapshots.taken(0, self.world.now())  # nothing has changed: the next interval begins
                continue
            try:
                await self.take_snapshot()
            except (OSError, errors.KafkaError) as error:
                logger.error("no snapshot of the metadata could be taken: %s", error)
                self._snapshots.taken(0, self.world.now())  # not again at once: the disk may be full

    async def take_snapshot(self) -> int:
        """Write the committed image as a snapshot, and drop old ones as the retention says; returns its end offset.

        Raises:
            KafkaStorageError, OSError: the disk failed. What was there before is still there.
        """
        log, image, config = self._open_log(), self.image, self.config
        quorum = Quorum(
            config.node_id,
            self.identity.directory_ids[config.metadata_directory],
            self.kraft_version,
            self._controller_endpoints(),
        )
        timestamp_ms = log.last_append_ms
        with trio.CancelScope(shield=True):  # a thread cannot be stopped, and must not outlive the log
            written = await self.world.run_in_thread(
                lambda: log.snapshots.write(image, quorum, timestamp_ms=timestamp_ms)
            )
        self._snapshots.taken(log.bytes_since(written.end_offset), self.world.now())
        logger.info("wrote the snapshot %s", written.file_name)
        dropped = log.clean(
            max_bytes=config.metadata_max_retention_bytes,
            max_age_ms=config.metadata_max_retention_ms,
            now_ms=self.world.wall_ms(),
        )
        if dropped:
            logger.info("dropped %d old snapshots; the log begins at offset %d", len(dropped), log.start_offset)
        return written.end_offset


def _replay(log: MetadataLog, now_ms: int) -> tuple[LogReplay, int]:
    """Everything that the directory says: the newest snapshot and the log after it. Also where the snapshot ends.

    Raises:
        KafkaStorageError: it cannot be read, or records are missing.
    """
    replay = LogReplay()
    start = log.start_offset
    try:
        snapshot = log.snapshots.newest()
        if snapshot is not None and snapshot.snapshot_id.end_offset >= start:
            end_offset, epoch = snapshot.snapshot_id
            replay.load(snapshot.batches, end_offset=end_offset, epoch=epoch)
            if end_offset > log.end_offset:
                if log.end_offset > log.start_offset:
                    raise log.damaged(
                        f"{log.directory}: the records end at offset {log.end_offset}, before the snapshot "
                        f"{snapshot.snapshot_id.file_name} does"
                    )
                logger.warning("%s: the log is empty, and begins anew at the snapshot's end", log.directory)
                log.begin_at(end_offset, now_ms=now_ms)
            start = end_offset
        elif start > 0:
            raise errors.KafkaStorageError(
                f"the metadata log in {log.directory} begins at offset {start}, and no snapshot leads up to it, or "
                f"none that can be read. Restore {log.directory} from a backup."
            )
        replay.replay(log.read_all(from_offset=start))
    except errors.CorruptRecordError as error:
        raise log.damaged(f"{log.directory}: {error}") from error
    except (OSError, ValueError, errors.ProtocolError) as error:
        raise errors.KafkaStorageError(f"{log.directory}: {error}") from error
    return replay, start
