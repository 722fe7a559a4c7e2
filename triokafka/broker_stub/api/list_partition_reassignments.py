"""ListPartitionReassignments (API key 46): list the reassignments in progress (KIP-455).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from triokafka.security.acl import AclOperation


@handles(ListPartitionReassignmentsRequest, versions=range(0, 1), accesses=[cluster(AclOperation.DESCRIBE)])
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Read the reassignments from the metadata image."""
    return list_reassignments(context.metadata.image, request)


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the reassignments in progress, of all partitions or of those in the request.

    The result omits partitions that do not exist.
    """
    if request.topics is None:
        asked = [(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    found = []
    for name, numbers in asked:
        partitions = []
        for number in numbers:
            partition = image.partition(name, number)
            if partition is not None and partition.reassigning:
                partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if partitions:
            found.append(OngoingTopicReassignment(name=name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=found)
