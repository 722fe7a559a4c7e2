"""Manual replica assignments of clients, for new topics, new partitions, and reassignments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.metadata.image import MetadataImage

if TYPE_CHECKING:
    from triokafka.protocol.api.create_topics import CreatableTopic

_DEFAULT: Final = -1


def manual_assignments(image: MetadataImage, topic: CreatableTopic) -> Sequence[tuple[int, ...]]:
    """Return the replicas of each partition from the request.

    Raises:
        InvalidRequestError: the request also has a partition count or replication factor.
        InvalidReplicationAssignmentError: they cannot be; says why.
    """
    if topic.replication_factor != _DEFAULT:
        raise errors.InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != _DEFAULT:
        raise errors.InvalidRequestError(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    assigned: dict[int, tuple[int, ...]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        number = assignment.partition_index
        if number in assigned:
            raise errors.InvalidReplicationAssignmentError(
                f"Found multiple manual partition assignments for partition {number}"
            )
        check_manual(image, number, assignment.broker_ids, factor)
        assigned[number] = tuple(assignment.broker_ids)
        factor = len(assignment.broker_ids)
    if set(assigned) != set(range(len(assigned))):
        raise errors.InvalidReplicationAssignmentError("partitions should be a consecutive 0-based integer sequence")
    return [assigned[number] for number in range(len(assigned))]


def check_replicas(image: MetadataImage, replicas: Sequence[int]) -> None:
    """Reject an empty list, unknown brokers, and duplicates.

    Raises:
        InvalidReplicationAssignmentError: the list is invalid.
    """
    if not replicas:
        raise errors.InvalidReplicationAssignmentError(
            "The manual partition assignment includes an empty replica list."
        )
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise errors.InvalidReplicationAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if replicas.count(broker_id) > 1:
            raise errors.InvalidReplicationAssignmentError(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )


def check_manual(image: MetadataImage, number: int, replicas: Iterable[int], factor: int | None) -> None:
    """Check the replicas of one new partition; ``factor`` is the replication factor of the others.

    Raises:
        InvalidReplicationAssignmentError: they cannot be; says why.
    """
    replicas = list(replicas)
    check_replicas(image, replicas)
    if factor is not None and len(replicas) != factor:
        raise errors.InvalidReplicationAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if not any(image.brokers[broker_id].active for broker_id in replicas):
        raise errors.InvalidReplicationAssignmentError(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown."
        )
