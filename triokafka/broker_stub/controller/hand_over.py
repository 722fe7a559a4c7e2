"""Moving the leadership of a partition to a named broker. Kafka has no such request; tests need it."""

from __future__ import annotations

from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage, PartitionImage
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord


def hand_over(image: MetadataImage, topic: str, partition: int, to: int | None) -> Outcome[int]:
    """Make broker ``to`` the leader of a partition in a new leader epoch; the response is its id.

    None selects the next active broker after the current leader, by id. If there is no other, the leader stays, in a
    new epoch. A broker without a replica replaces the current leader's replica.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
        BrokerNotAvailableError: the broker, or every broker, is inactive.
    """
    state = image.partition(topic, partition)
    if state is None:
        raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic}-{partition}")
    if to is None:
        to = _next(image, state)
    broker = image.brokers.get(to)
    if broker is None or not broker.active:
        active = sorted(node.broker_id for node in image.brokers.values() if node.active)
        raise errors.BrokerNotAvailableError(f"broker {to} cannot lead {topic}-{partition}; {active} are active")
    record = PartitionChangeRecord(partition_id=partition, topic_id=image.topics[topic].topic_id, leader=to)
    if to not in state.replicas:
        gone = state.leader if state.leader in state.replicas else state.replicas[0]
        replicas = [to if replica == gone else replica for replica in state.replicas]
        record.replicas = replicas
        record.directories = [_directory(image, broker_id) for broker_id in replicas]
        record.isr = list(dict.fromkeys(to if replica == gone else replica for replica in (*state.isr, gone)))
    elif to not in state.isr:
        record.isr = [*state.isr, to]
    return Outcome([record], to)


def _next(image: MetadataImage, state: PartitionImage) -> int:
    active = sorted(broker.broker_id for broker in image.brokers.values() if broker.active)
    # Replicas first, since Kafka elects leaders among replicas only.
    candidates = [broker_id for broker_id in active if broker_id in state.replicas and broker_id != state.leader]
    candidates = candidates or [broker_id for broker_id in active if broker_id != state.leader] or active
    if not candidates:
        raise errors.BrokerNotAvailableError("no broker is active")
    return next((broker_id for broker_id in candidates if broker_id > state.leader), candidates[0])


def _directory(image: MetadataImage, broker_id: int) -> UUID:
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory()
