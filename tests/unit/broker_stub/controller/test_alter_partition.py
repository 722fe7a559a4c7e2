"""AlterPartition: a proposal is checked against the state on which the leader based it."""

from __future__ import annotations

import uuid

import pytest

from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller.alter_partition import alter_partition
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.protocol.api.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

ID = uuid.UUID(int=7)
IMAGE = cluster(topic("t", [1, 2, 3], isr=[1, 2]), brokers=(1, 2, 3))


def clean(name: str) -> LogConfig:
    return LogConfig()


def ask(
    isr: list[int | tuple[int, int]],
    *,
    image: MetadataImage = IMAGE,
    leader: int = 1,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    recovery: int = 0,
    topic_id: uuid.UUID = ID,
    number: int = 0,
) -> tuple[AlteredPartition, MetadataImage]:
    states = [
        BrokerState(broker_id=entry)
        if isinstance(entry, int)
        else BrokerState(broker_id=entry[0], broker_epoch=entry[1])
        for entry in isr
    ]
    wanted = PartitionData(
        partition_index=number,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=states,
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )
    request = AlterPartitionRequest(
        broker_id=leader, broker_epoch=100 + leader, topics=[TopicData(topic_id=topic_id, partitions=[wanted])]
    )
    outcome = alter_partition(image, request, clean)
    return outcome.response.topics[0].partitions[0], replayed(outcome.records, image)


@pytest.mark.parametrize("isr", [[1], [1, 2, 3]])
def test_in_sync_set_shrinks_and_grows_in_the_same_leader_epoch(isr: list[int]) -> None:
    """(no epoch bump when it shrinks)"""
    answer, image = ask(list(isr))
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == (tuple(isr), 1, 0, 1)
    assert (answer.error_code, answer.isr, answer.leader_epoch, answer.partition_epoch) == (0, isr, 0, 1)


def test_unchanged_in_sync_set_is_answered_without_a_record() -> None:
    answer, image = ask([1, 2])
    assert (answer.error_code, answer.partition_epoch) == (0, 0)
    assert image.topics == IMAGE.topics


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"isr": [1, 2, 3], "partition_epoch": -1}, errors.InvalidUpdateVersionError),
        ({"isr": [1, 2, 3], "leader_epoch": -1}, errors.FencedLeaderEpochError),
        ({"isr": [1, 2, 3], "leader_epoch": 1}, errors.NotControllerError),
        ({"isr": [1, 2, 3], "partition_epoch": 1}, errors.NotControllerError),
        ({"isr": [1, 2, 3], "leader": 2}, errors.InvalidRequestError),
        ({"isr": [2, 3]}, errors.InvalidRequestError),
        ({"isr": [1, 9]}, errors.InvalidRequestError),
        ({"isr": [1, 1]}, errors.InvalidRequestError),
        ({"isr": [1], "recovery": 1}, errors.InvalidRequestError),
        ({"isr": [1], "recovery": 7}, errors.InvalidRequestError),
        ({"isr": [1, (3, 5)]}, errors.IneligibleReplicaError),
        ({"isr": [1], "topic_id": uuid.UUID(int=5)}, errors.UnknownTopicIdError),
        ({"isr": [1], "number": 4}, errors.UnknownTopicOrPartitionError),
    ],
)
def test_request_that_does_not_fit_is_refused_with_its_reason(
    wrong: dict[str, object], error: type[errors.BrokerResponseError]
) -> None:
    """(KIP-497, KIP-841, KIP-903)"""
    answer, image = ask(**wrong)  # type: ignore[arg-type]
    assert answer.error_code == error.code
    assert image.topics == IMAGE.topics


def test_replica_of_a_fenced_broker_is_not_in_sync() -> None:
    image = cluster(topic("t", [1, 2, 3], isr=[1, 2]), broker(3, fenced=True), brokers=(1, 2))
    answer, _ = ask([1, 2, 3], image=image)
    assert answer.error_code == errors.IneligibleReplicaError.code


def test_broker_of_another_epoch_is_refused_as_a_whole() -> None:
    for broker_id, epoch, error in (
        (1, 5, errors.StaleBrokerEpochError),
        (9, 109, errors.BrokerIdNotRegisteredError),
    ):
        with pytest.raises(error):
            alter_partition(IMAGE, AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch), clean)


def test_leader_that_has_recovered_says_so() -> None:
    """(KIP-704)"""
    image = replayed([PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1], leader_recovery_state=1)], IMAGE)
    refused, _ = ask([1, 2], image=image, recovery=1, partition_epoch=1)
    assert refused.error_code == errors.InvalidRequestError.code
    answer, after = ask([1], image=image, partition_epoch=1)
    assert (answer.error_code, answer.leader_recovery_state) == (0, 0)
    assert after.topics["t"].partitions[0].leader_recovery_state == 0


def test_reassignment_ends_when_the_last_new_replica_is_in_sync() -> None:
    """The removed leader learns of the new one from the image."""
    moving = PartitionChangeRecord(
        partition_id=0,
        topic_id=ID,
        replicas=[3, 1, 2],
        directories=[uuid.UUID(int=2000 + broker_id) for broker_id in (3, 1, 2)],
        adding_replicas=[3],
        removing_replicas=[1, 2],
    )
    image = replayed([moving], IMAGE)
    waiting, image_waiting = ask([1, 2], image=image, partition_epoch=1)
    assert waiting.error_code == 0 and image_waiting.topics["t"].partitions[0].reassigning
    answer, after = ask([1, 2, 3], image=image, partition_epoch=1)
    assert answer.error_code == errors.NewLeaderElectedError.code
    partition = after.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((3,), (3,), 3)
    assert not partition.reassigning and partition.leader_epoch == 1
