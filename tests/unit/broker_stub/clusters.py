"""Clusters in a certain state, for the tests of the controller: built from the records that the controller writes."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from tests.support.control_batches import encode_snapshot_header
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.activation_records import initial_records
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.topic_control import TopicControl
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.metadata import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.features import ELIGIBLE_LEADER_REPLICAS, SUPPORTED
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.broker_stub.metadata.lifecycle_values import BrokerRegistration
from triokafka.broker_stub.metadata.snapshots import encode_image
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.protocol.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import (
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

DATA = "/data"
CONFIG = BrokerConfig.for_tests(log_dirs=(DATA,))
ENDPOINT = EndpointImage("PLAINTEXT", "localhost", 9092)


def numbered_ids() -> Callable[[], uuid.UUID]:
    """Ids 1, 2, 3, …"""
    numbers = itertools.count(1)
    return lambda: uuid.UUID(int=next(numbers))


def replayed(records: Iterable[Struct], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """The image after these records."""
    delta = MetadataDelta(base)
    count = 0
    for record in records:
        delta.replay(record)
        count += 1
    return delta.image(base.offset + count, 1)


def broker(broker_id: int, *, rack: str | None = None, fenced: bool = False) -> RegisterBrokerRecord:
    """A registration; broker n has the epoch 100 + n."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=100 + broker_id,
        incarnation_id=uuid.UUID(int=1000 + broker_id),
        end_points=[],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=rack,
        fenced=fenced,
        log_dirs=[uuid.UUID(int=2000 + broker_id)],
    )


def topic(
    name: str,
    *partitions: Sequence[int],
    number: int = 7,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> list[Struct]:
    """A topic with these replica lists; all in sync and the first leading unless said otherwise."""
    topic_id = uuid.UUID(int=number)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in (configs or {}).items()
        ),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[uuid.UUID(int=2000 + broker_id) for broker_id in replicas],
            )
            for index, replicas in enumerate(partitions)
        ),
    ]


def cluster(*records: Struct | Sequence[Struct], brokers: Sequence[int] = (1,)) -> MetadataImage:
    """A cluster of brokers that are up, without eligible leader replicas, and with more records on top."""
    flat: list[Struct] = []
    for record in records:
        flat += record if isinstance(record, list | tuple) else [record]  # type: ignore[list-item]
    without_elr = FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=0)
    levels = [record for record in initial_records() if isinstance(record, FeatureLevelRecord)]
    return replayed([*levels, without_elr, *(broker(broker_id) for broker_id in brokers), *flat])


def replication(config: BrokerConfig = CONFIG) -> TopicControl:
    """Places from the first broker on."""
    return TopicControl(config, ConfigurationControl(config), pick=lambda below: 0, new_id=numbered_ids())


def wanted(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:
    """One topic of a CreateTopics request."""
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
    )


def creation(*topics: CreatableTopic, validate_only: bool = False, timeout_ms: int = 60_000) -> CreateTopicsRequest:
    """A CreateTopics request."""
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms)


def codes(response: CreateTopicsResponse) -> list[int]:
    """The error codes in the order of the topics."""
    return [result.error_code for result in response.topics]


class MemoryWorld(RealWorld):
    """The real clock, and a disk in memory that a test can break."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        super().__init__()
        self.disk = storage or MemoryStorage()
        self.storage = self.disk


def local(controller: Controller) -> LocalControllerGateway:
    """The gateway of a broker in the controller's process."""
    return LocalControllerGateway(controller)


def lifecycle(controller: Controller, world: RealWorld, config: BrokerConfig = CONFIG) -> BrokerLifecycle:
    """The life of the node's broker, not started."""
    return BrokerLifecycle(
        world,
        local(controller),
        heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
        session_timeout_ms=config.broker_session_timeout_ms,
        metadata_offset=lambda: controller.image.offset,
        registered=lambda epoch: None,
    )


def registration(controller: Controller, world: RealWorld, config: BrokerConfig = CONFIG) -> BrokerRegistration:
    """Return the registration of a new process of the node's broker."""
    return BrokerRegistration(
        broker_id=config.node_id,
        incarnation_id=world.uuid(),
        cluster_id=controller.metadata.cluster_id,
        endpoints=(ENDPOINT,),
        features=SUPPORTED,
        directories=tuple(controller.metadata.identity.directory_ids[path] for path in config.data_directories),
    )


def encode_snapshot(image: MetadataImage, *, timestamp_ms: int) -> bytes:
    """A whole snapshot, of a quorum of one with kraft.version 1."""
    header = encode_snapshot_header(
        1,
        uuid.UUID(int=9),
        epoch=image.epoch,
        timestamp_ms=timestamp_ms,
        kraft_version=1,
        endpoints=[("CONTROLLER", "localhost", 0)],
    )
    return header + b"".join(encode_image(image, first_offset=3, timestamp_ms=timestamp_ms))


def new_controller(world: RealWorld, config: BrokerConfig = CONFIG) -> Controller:
    """A controller with the metadata of its node, not opened."""
    return Controller(world, config, NodeMetadata(world, config))


async def run_controller(controller: Controller) -> None:
    """Run a controller and the metadata of its node."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.metadata.run)
        await controller.run()
        nursery.cancel_scope.cancel()


async def active(controller: Controller) -> None:
    """Wait until the controller is active and its first records are published."""
    await controller.wait_active()
    while not controller.image.features:
        await trio.sleep(0.001)


async def let_in(controller: Controller, world: RealWorld, config: BrokerConfig = CONFIG) -> BrokerLifecycle:
    """Register the node's broker and have it unfenced."""
    life = lifecycle(controller, world, config)
    await life.start(registration(controller, world, config), timeout_ms=1_000)
    return life


@asynccontextmanager
async def running(
    world: RealWorld, config: BrokerConfig = CONFIG, *, register: bool = True
) -> AsyncIterator[Controller]:
    """A started controller with its queue running. Leaving the block ends it as a killed process ends."""
    controller = new_controller(world, config)
    await controller.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.metadata.run)
        nursery.start_soon(controller.run)
        await active(controller)
        if register:
            await let_in(controller, world, config)
        yield controller
        nursery.cancel_scope.cancel()
