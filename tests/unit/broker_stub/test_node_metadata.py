"""The metadata of several nodes over a scripted quorum: following, terms, failover, snapshots, restarts."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.log_replay import replayed_batches
from tests.support.scripted_quorum import ScriptedQuorum
from tests.unit.broker_stub.clusters import MemoryWorld
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.raft.metadata_log import MetadataLogFiles
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE, encode_bootstrap
from triokafka.protocol.stored.cluster_metadata import BeginTransactionRecord, FeatureLevelRecord, TopicRecord
from triokafka.world.memory import MemoryStorage

VOTERS = tuple(f"{number}@localhost:{9090 + number}" for number in (1, 2, 3))


class InstantWorld(MemoryWorld):
    """Threads do their work at once, on the event loop: the test alone decides the order of events."""

    async def run_in_thread(self, function: Any, *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)


def config_of(node_id: int, **options: Any) -> BrokerConfig:
    return BrokerConfig.for_tests(
        node_id=node_id,
        log_dirs=("/data",),
        listeners=(f"PLAINTEXT://127.0.0.1:{9000 + node_id}", f"CONTROLLER://127.0.0.1:{9090 + node_id}"),
        controller_quorum_voters=VOTERS,
        controller_listener_names=("CONTROLLER",),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
        metadata_max_idle_interval_ms=0,
        **options,
    )


class QuorumNode:
    """One combined node without its broker: metadata and controller."""

    def __init__(self, cluster: Cluster, node_id: int, storage: MemoryStorage, **options: Any) -> None:
        self.node_id = node_id
        self.storage = storage
        self.world = InstantWorld(storage)
        config = config_of(node_id, **options)
        self.metadata = NodeMetadata(self.world, config, cluster_id="cluster", new_client=cluster.quorum.new_client)
        self.controller = Controller(self.world, config, self.metadata)
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.controller.open()
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.metadata.run)
                nursery.start_soon(self.controller.run)
                task_status.started()

    @property
    def topics(self) -> set[str]:
        return set(self.metadata.image.topics)

    def stop(self) -> None:
        self._scope.cancel()


class Cluster:
    """Three nodes over a scripted quorum, and the answers of callers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.quorum = ScriptedQuorum()
        self.nodes: dict[int, QuorumNode] = {}
        self.answers: dict[str, str] = {}
        self._nursery = nursery

    async def start(self, node_id: int, storage: MemoryStorage | None = None, **options: Any) -> QuorumNode:
        node = QuorumNode(self, node_id, MemoryStorage() if storage is None else storage, **options)
        self.nodes[node_id] = node
        await self._nursery.start(node.run)
        return node

    async def settle(self) -> None:
        await wait_all_tasks_blocked()

    async def elect(self, node_id: int) -> None:
        self.quorum.elect(node_id)
        await self.settle()
        self.quorum.replicate()  # its first records
        await self.settle()

    def create(self, node_id: int, name: str) -> None:
        """Begin an operation that creates a topic; ``answers`` gets its end."""

        async def run() -> None:
            record = TopicRecord(name=name, topic_id=uuid.uuid4())
            try:
                await self.nodes[node_id].controller.submit("create", lambda image: _create(image, record))
            except errors.KafkaError as error:
                self.answers[name] = type(error).__name__
            else:
                self.answers[name] = "created"

        assert name not in self.answers
        self._nursery.start_soon(run)


def _create(image: MetadataImage, record: TopicRecord) -> Outcome[None]:
    return Outcome([] if record.name in image.topics else [record], None)


@asynccontextmanager
async def running(*node_ids: int) -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        for node_id in node_ids:
            await cluster.start(node_id)
        yield cluster
        for node in cluster.nodes.values():
            node.stop()


def logged(storage: MemoryStorage, up_to: int) -> MetadataImage:
    """The image of a log on disk, replayed from its beginning."""
    return replayed_batches(MetadataLogFiles(storage, "/data", now_ms=0).read_all(up_to=up_to))[0]


async def test_standby_nodes_follow_the_active_controller() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        assert [node.controller.is_active for node in cluster.nodes.values()] == [True, False, False]
        assert all(node.metadata.image.features for node in cluster.nodes.values())
        cluster.create(1, "a")
        await cluster.settle()
        assert cluster.answers == {} and cluster.nodes[2].topics == set()
        cluster.quorum.replicate()
        await cluster.settle()
        assert cluster.answers == {"a": "created"}
        assert [node.topics for node in cluster.nodes.values()] == [{"a"}] * 3


async def test_standby_controller_refuses_operations() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        cluster.create(2, "a")
        await cluster.settle()
        assert cluster.answers == {"a": "NotControllerError"}


async def test_new_leader_becomes_active_when_it_has_published_everything_before_its_epoch() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        cluster.create(1, "a")
        await cluster.settle()
        cluster.quorum.replicate(to=())  # only the leader has it
        await cluster.settle()
        assert cluster.answers == {}
        cluster.quorum.replicate(to=[2])  # committed; node 3 does not know
        await cluster.settle()
        cluster.quorum.elect(2, replicate=False)
        await cluster.settle()
        assert not cluster.nodes[2].controller.is_active  # its epoch has no committed record yet
        cluster.quorum.replicate()
        await cluster.settle()
        assert cluster.nodes[2].controller.is_active and cluster.nodes[2].topics == {"a"}
        assert cluster.nodes[2].controller.state.committed.topics.keys() == {"a"}
        assert cluster.answers == {"a": "created"}


async def test_lost_leadership_fails_uncommitted_operations_and_the_node_follows_again() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        cluster.create(1, "lost")
        await cluster.settle()
        assert cluster.nodes[1].controller.state.image.topics.keys() == {"lost"}
        await cluster.elect(2)
        assert cluster.answers == {"lost": "NotControllerError"}
        assert not cluster.nodes[1].controller.is_active and cluster.nodes[1].topics == set()
        cluster.create(2, "b")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        assert [node.topics for node in cluster.nodes.values()] == [{"b"}] * 3
        await cluster.elect(1)
        cluster.create(1, "c")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        assert [node.topics for node in cluster.nodes.values()] == [{"b", "c"}] * 3


async def test_periodic_work_is_done_by_the_active_controller_alone() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        assert cluster.nodes[1].controller._active.is_set()
        await cluster.elect(3)
        assert [node.controller.is_active for node in cluster.nodes.values()] == [False, False, True]


async def test_first_records_are_one_transaction_and_are_written_once() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        first = cluster.nodes[1].metadata.image.features
        await cluster.elect(2)
        assert cluster.nodes[2].metadata.image.features == first
        files = cluster.nodes[2].metadata.files
        records = [record for batch in files.read_all() for record in batch.records]
        begins = [record for record in records if isinstance(record, BeginTransactionRecord)]
        assert [record.name for record in begins] == ["Bootstrap records"]


async def test_first_records_come_from_bootstrap_checkpoint() -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        for node_id in (1, 2, 3):
            storage = MemoryStorage()
            storage.make_dirs("/data")
            records = [FeatureLevelRecord(name="metadata.version", feature_level=20)]
            storage.replace_file(f"/data/{BOOTSTRAP_FILE}", encode_bootstrap(records, metadata_version=20, now_ms=0))
            await cluster.start(node_id, storage)
        await cluster.elect(3)
        assert cluster.nodes[1].metadata.image.features == {"metadata.version": 20}
        nursery.cancel_scope.cancel()


async def test_leader_that_failed_within_a_transaction_has_it_aborted() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        record = TopicRecord(name="held", topic_id=uuid.uuid4())
        client = cluster.quorum.clients[1]
        client.append([BeginTransactionRecord(name="x"), record], client.epoch, metadata_version=25)
        cluster.quorum.replicate()
        await cluster.elect(2)
        cluster.create(2, "next")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        assert [node.topics for node in cluster.nodes.values()][1:] == [{"next"}] * 2
        image = cluster.nodes[3].metadata.image
        assert set(logged(cluster.nodes[3].storage, image.offset + 1).topics) == {"next"}


async def test_node_without_the_records_loads_the_leaders_snapshot() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        cluster.quorum.unreachable.add(3)
        for name in "abc":
            cluster.create(1, name)
            await cluster.settle()
            cluster.quorum.replicate()
            await cluster.settle()
        end = await cluster.nodes[1].controller.take_snapshot()
        files = cluster.nodes[1].metadata.files
        newest = files.latest_snapshot_id()
        assert newest is not None and newest.end_offset == end and files.delete_before_snapshot(newest)
        events: list[tuple[str, int]] = []

        def prepare(delta: MetadataDelta, image: MetadataImage) -> Iterator[int]:
            yield 1
            events.append(("prepared", image.offset))

        publisher = cluster.nodes[3].metadata.publisher
        publisher.subscribe(lambda delta, image: events.append(("published", image.offset)), preparation=prepare)
        cluster.quorum.unreachable.clear()
        await cluster.elect(1)
        assert cluster.nodes[3].topics == {"a", "b", "c"}
        assert [event for event in events if event[1] == end - 1] == [("prepared", end - 1), ("published", end - 1)]
        assert cluster.nodes[3].metadata.files.latest_snapshot_id() == newest


async def test_snapshots_are_taken_on_standby_nodes() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        cluster.create(1, "a")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        end = await cluster.nodes[2].metadata.snapshots.take()
        assert end == cluster.nodes[2].metadata.image.offset + 1
        storage = cluster.nodes[2].storage
        cluster.nodes[2].stop()
        await cluster.settle()
        again = await cluster.start(2, storage)
        assert again.topics == {"a"}


async def test_snapshot_that_is_due_at_the_start_waits_until_something_is_known_to_be_committed() -> None:
    """The node may have been killed when the snapshot was due: it starts, and takes the snapshot after all."""
    async with running(1, 2, 3) as cluster:
        await cluster.elect(1)
        first = await cluster.nodes[2].metadata.snapshots.take()
        cluster.create(1, "a")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        storage = cluster.nodes[2].storage
        cluster.nodes[2].stop()
        await cluster.settle()
        again = await cluster.start(2, storage, metadata_log_max_record_bytes_between_snapshots=1)
        await cluster.settle()
        newest = again.metadata.files.latest_snapshot_id()
        cluster.create(1, "b")
        await cluster.settle()
        cluster.quorum.replicate()
        await cluster.settle()
        assert again.topics == {"a", "b"}
        after = again.metadata.files.latest_snapshot_id()
        assert newest is not None and after is not None and newest.end_offset >= first and after > newest


async def test_node_with_other_voters_must_be_formatted() -> None:
    metadata = NodeMetadata(InstantWorld(), config_of(1), new_client=ScriptedQuorum().new_client)
    with pytest.raises(errors.ConfigurationError, match="triokafka storage format"):
        await metadata.open()


@pytest.mark.parametrize("seed", range(40))
async def test_nothing_committed_is_lost_and_every_operation_ends_once(seed: int) -> None:
    """Random operations, replication, cuts, elections and crashes of nodes.

    A success is in every image afterwards. What failed with NOT_CONTROLLER may still have been replicated by a later
    leader, as in Apache Kafka, but it never both fails and succeeds. All nodes end with one image, which is the replay
    of their logs.
    """
    rng = random.Random(seed)
    async with running(1, 2, 3) as cluster:
        number = 0
        await cluster.elect(rng.randint(1, 3))
        for _ in range(60):
            match rng.randrange(8):
                case 0 | 1 | 2:
                    number += 1
                    cluster.create(rng.randint(1, 3), f"t{number}")
                case 3 | 4:
                    cluster.quorum.replicate(to=[node_id for node_id in (1, 2, 3) if rng.random() < 0.7])
                case 5:
                    electable = cluster.quorum.electable()
                    if electable:
                        cluster.quorum.elect(rng.choice(electable), replicate=rng.random() < 0.5)
                case 6:
                    cluster.quorum.unreachable = {rng.randint(1, 3)} if rng.random() < 0.6 else set()
                case 7:
                    node = cluster.nodes[rng.randint(1, 3)]
                    node.stop()
                    await cluster.settle()
                    node.storage.crash(rng)
                    await cluster.start(node.node_id, node.storage)
            if rng.random() < 0.7:
                await cluster.settle()
        cluster.quorum.unreachable = set()
        await cluster.settle()
        for _ in range(3):
            cluster.quorum.elect(cluster.quorum.electable()[0])
            cluster.quorum.replicate()
            await cluster.settle()
        images = [node.metadata.image for node in cluster.nodes.values()]
        assert len(cluster.answers) == number
        created = {name for name, answer in cluster.answers.items() if answer == "created"}
        for node, image in zip(cluster.nodes.values(), images, strict=True):
            assert created <= set(image.topics), f"node {node.node_id} lost a committed topic"
            assert set(image.topics) == set(images[0].topics)
            assert set(logged(node.storage, image.offset + 1).topics) == set(image.topics)


async def test_quorum_state_of_a_static_quorum_is_written() -> None:
    async with running(1, 2, 3) as cluster:
        await cluster.elect(2)
        state = QuorumStateFile(cluster.nodes[1].storage, "/data/__cluster_metadata-0").read()
        assert state is not None and (state.epoch, state.leader_id) == (1, 2)
