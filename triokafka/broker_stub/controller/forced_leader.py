"""Moving the leadership of a partition to a named broker. Kafka has no such request; tests need it."""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord


def active_leader(image: MetadataImage, topic: str, partition: int, to: int | None = None) -> int:
    """Return the broker that leads a partition next: ``to``, or the next active broker by id when it is None.

    If there is no other broker, it is the present leader. The broker need not have a replica.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
        BrokerNotAvailableError: the broker, or every broker, is inactive.
    """
    state = _state(image, topic, partition)
    if to is None:
        to = _next(image, state)
    broker = image.brokers.get(to)
    if broker is None or not broker.active:
        active = sorted(node.broker_id for node in image.brokers.values() if node.active)
        raise errors.BrokerNotAvailableError(f"broker {to} cannot lead {topic}-{partition}; {active} are active")
    return to


def hand_over(image: MetadataImage, topic: str, partition: int, to: int) -> Outcome[int]:
    """Make broker ``to``, which must be in sync, the leader of a partition in a new leader epoch; return its id.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
        BrokerNotAvailableError: the broker is inactive.
        EligibleLeadersNotAvailableError: the broker is not in sync; records could be lost.
    """
    state = _state(image, topic, partition)
    to = active_leader(image, topic, partition, to)
    if to not in state.isr:
        raise errors.EligibleLeadersNotAvailableError(
            f"broker {to} cannot lead {topic}-{partition}: {list(state.isr)} are in sync"
        )
    record = PartitionChangeRecord(partition_id=partition, topic_id=image.topics[topic].topic_id, leader=to)
    return Outcome([record], to)


def _state(image: MetadataImage, topic: str, partition: int) -> PartitionImage:
    state = image.partition(topic, partition)
    if state is None:
        raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic}-{partition}")
    return state


def _next(image: MetadataImage, state: PartitionImage) -> int:
    active = sorted(broker.broker_id for broker in image.brokers.values() if broker.active)
    # Replicas first, since Kafka elects leaders among replicas only.
    candidates = [broker_id for broker_id in active if broker_id in state.replicas and broker_id != state.leader]
    candidates = candidates or [broker_id for broker_id in active if broker_id != state.leader] or active
    if not candidates:
        raise errors.BrokerNotAvailableError("no broker is active")
    return next((broker_id for broker_id in candidates if broker_id > state.leader), candidates[0])
