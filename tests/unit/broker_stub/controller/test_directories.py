"""Log directories of brokers: assignment, failure, registration (KIP-858)."""

from __future__ import annotations

import uuid

import pytest

from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.broker_control import BrokerControl
from triokafka.broker_stub.controller.directory_assignment import assign_replicas_to_directories
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.features import SUPPORTED
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration
from triokafka.protocol.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

ONE, TWO = uuid.UUID(int=2001), uuid.UUID(int=3001)


def assign(
    image: MetadataImage, directory: uuid.UUID, *, epoch: int = 101, number: int = 0, topic_id: int = 7
) -> tuple[int, MetadataImage]:
    partitions = [PartitionData(partition_index=number)]
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=epoch,
        directories=[
            DirectoryData(id=directory, topics=[TopicData(topic_id=uuid.UUID(int=topic_id), partitions=partitions)])
        ],
    )
    outcome = assign_replicas_to_directories(image, request, lambda name: LogConfig())
    code = outcome.response.directories[0].topics[0].partitions[0].error_code
    return code, replayed(outcome.records, image)


def two_directories() -> MetadataImage:
    record = broker(1)
    record.log_dirs = [ONE, TWO]
    return cluster(record, topic("t", [1, 2]), brokers=(2,))


def control() -> BrokerControl:
    made = BrokerControl(9.0, lambda image, name: LogConfig())
    made.begin(two_directories(), now=0.0, cluster_id="c")
    return made


def test_directory_of_a_replica_is_recorded_without_a_new_leader_epoch() -> None:
    code, after = assign(two_directories(), TWO)
    partition = after.topics["t"].partitions[0]
    assert (code, partition.directory_of(1), partition.leader, partition.leader_epoch) == (0, TWO, 1, 0)
    assert assign(after, TWO) == (0, after)


def test_replica_in_an_unknown_directory_leaves_the_in_sync_set() -> None:
    code, after = assign(two_directories(), uuid.UUID(int=9999))
    partition = after.topics["t"].partitions[0]
    assert (code, partition.isr, partition.leader) == (0, (2,), 2)


def test_unknown_topics_partitions_and_replicas_get_errors_of_their_own() -> None:
    image = two_directories()
    assert assign(image, ONE, topic_id=8)[0] == errors.UnknownTopicIdError.code
    assert assign(image, ONE, number=5)[0] == errors.UnknownTopicOrPartitionError.code
    elsewhere = replayed(topic("u", [2], number=8), image)
    assert assign(elsewhere, ONE, topic_id=8)[0] == errors.NotLeaderForPartitionError.code
    with pytest.raises(errors.StaleBrokerEpochError):
        assign(image, ONE, epoch=5)


def test_partitions_of_a_failed_directory_get_other_leaders() -> None:
    image = replayed(topic("safe", [1, 2], number=8), two_directories())
    _, image = assign(image, TWO, topic_id=8)
    beat = BrokerHeartbeat(1, 101, image.offset, offline_directories=(ONE,))
    outcome = control().heartbeat(image, beat, now=1.0)
    after = replayed(outcome.records, image)
    assert (after.topics["t"].partitions[0].leader, after.topics["t"].partitions[0].isr) == (2, (2,))
    assert after.topics["safe"].partitions[0].leader == 1
    assert after.brokers[1].directories == (TWO,)
    assert control().heartbeat(after, beat, now=2.0).records == []


def test_broker_that_is_unfenced_with_a_failed_directory_does_not_lead_there() -> None:
    record = broker(1, fenced=True)
    record.log_dirs = [ONE, TWO]
    image = cluster(record, topic("t", [1], isr=[1], leader=-1), brokers=())
    outcome = control().heartbeat(image, BrokerHeartbeat(1, 101, 200, offline_directories=(ONE,)), now=1.0)
    after = replayed(outcome.records, image)
    assert not after.brokers[1].fenced and after.topics["t"].partitions[0].leader == -1


@pytest.mark.parametrize("directories", [(), (uuid.UUID(int=5),), (TWO, TWO), (uuid.UUID(int=2002),)])
def test_registration_with_invalid_directories_is_refused(directories: tuple[uuid.UUID, ...]) -> None:
    """That is no directory, a reserved id, an id twice, or an id of another broker."""
    registration = BrokerRegistration(3, uuid.UUID(int=1), "c", (), SUPPORTED, directories=directories)
    with pytest.raises(errors.InvalidRegistrationError):
        control().register(two_directories(), registration, now=0.0, next_offset=50)
