"""AddOffsetsToTxn (API key 25): add a group's partition of ``__consumer_offsets`` to a transaction.

Versions 0-4. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE, transaction_error
from triokafka.broker_stub.authorizer import Access, of_group
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import KafkaError
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from triokafka.security.acl import AclOperation
from triokafka.structs import TopicPartition
from triokafka.topic_names import GROUP_METADATA_TOPIC

_FENCED_SINCE: Final = 2
_CLIENT_VERSION: Final = 0
"""The transaction version of clients that add groups themselves."""


@handles(
    AddOffsetsToTxnRequest,
    versions=range(0, 5),
    accesses=[
        Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.transactional_id], per_item=False),
        of_group(AclOperation.READ),
    ],
    waits=True,
)
async def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Store the partition with the transaction, and respond when that is committed."""
    try:
        await context.topic_creation.ensure(GROUP_METADATA_TOPIC)
        partition = TopicPartition(GROUP_METADATA_TOPIC, context.groups.runtime.partition_for(request.group_id))
        await context.transactions.add_partitions(
            request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            added=[partition],
            version=_CLIENT_VERSION,
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=transaction_error(error, context, fenced_since=_FENCED_SINCE))
    return AddOffsetsToTxnResponse()
