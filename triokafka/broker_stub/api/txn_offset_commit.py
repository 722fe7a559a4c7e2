"""TxnOffsetCommit (API key 28): store the offsets of a group as part of a transaction.

Versions 0-5. v2: leader epochs. v3: flexible; member, generation and instance id, so that a member that has left the
group cannot commit (KIP-447). v4: TRANSACTION_ABORTABLE. v5: the request itself adds the group to the transaction
(KIP-890).
"""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE
from triokafka.broker_stub.authorizer import Access, of_group, of_topics
from triokafka.broker_stub.coordinators.transaction_verifier import AppendingProducer
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.coordinator.group.append_errors import coordinator_error
from triokafka.coordinator.group.transactional_offset_requests import commit_failed
from triokafka.protocol.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition
from triokafka.topic_names import GROUP_METADATA_TOPIC

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5


def _failed(
    request: TxnOffsetCommitRequest, context: RequestContext, code: int, message: str
) -> TxnOffsetCommitResponse:
    return commit_failed(request, code)


def _refused(request: TxnOffsetCommitRequest, context: RequestContext) -> dict[str, int]:
    """Return the codes of topics that the client may not read, or that do not exist."""
    codes: dict[str, int] = {}
    for topic in request.topics:
        if context.denied(AclOperation.READ, ResourceType.TOPIC, topic.name):
            codes[topic.name] = errors.TopicAuthorizationFailedError.code
        elif topic.name not in context.metadata.image.topics:
            codes[topic.name] = errors.UnknownTopicOrPartitionError.code
    return codes


@handles(
    TxnOffsetCommitRequest,
    versions=range(0, 6),
    accesses=[
        Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.transactional_id], per_item=False),
        of_group(AclOperation.READ),
        of_topics(AclOperation.READ),
    ],
    waits=True,
    on_error=_failed,
)
async def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    """Let the group's partition join the transaction if necessary, and write the offsets to it."""
    if not request.group_id:
        return commit_failed(request, errors.InvalidGroupIdError.code, _refused(request, context))
    partition = TopicPartition(GROUP_METADATA_TOPIC, context.groups.runtime.partition_for(request.group_id))
    context.groups.check_coordinates(request.group_id)
    producer = AppendingProducer(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        adds=context.version >= _ADDS_SINCE,
        knows_abortable=context.version >= _ABORTABLE_SINCE,
    )
    admission = await context.broker.transaction_verifier.admit(producer, {partition: -1})
    code = admission.errors.get(partition, 0)
    if code:
        if code == errors.NetworkExceptionError.code:
            code = errors.CoordinatorLoadInProgressError.code  # which clients repeat
        return commit_failed(request, coordinator_error(errors.for_code(code)()), _refused(request, context))
    return await context.groups.transactions.commit_offsets(
        request,
        guard=admission.guards[partition],
        may_read=lambda name: not context.denied(AclOperation.READ, ResourceType.TOPIC, name),
    )
