"""DescribeTransactions (API key 65): the state of transactions by transactional id (KIP-664).

Version 0.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from triokafka.security.acl import AclOperation, ResourceType


def _failed(
    request: DescribeTransactionsRequest, context: RequestContext, code: int, message: str
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=code, transactional_id=name) for name in request.transactional_ids
        ]
    )


@handles(
    DescribeTransactionsRequest,
    versions=range(0, 1),
    accesses=[
        Access(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lambda request: request.transactional_ids),
        Access(AclOperation.DESCRIBE, ResourceType.TOPIC, lambda request: ()),
    ],
    on_error=_failed,
)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id that this broker coordinates and the client may describe."""
    return DescribeTransactionsResponse(
        transaction_states=[_state(name, context) async for name in in_portions(request.transactional_ids)]
    )


def _state(name: str, context: RequestContext) -> TransactionState:
    kind = ResourceType.TRANSACTIONAL_ID
    try:
        if context.denied(AclOperation.DESCRIBE, kind, name):
            raise denial(kind)(f"not permitted to describe the transactional id {name!r}")
        if not name:
            raise errors.InvalidRequestError("a transactional id may not be empty")
        found = context.transactions.describe(name)
    except errors.BrokerResponseError as error:
        return TransactionState(error_code=error.code, transactional_id=name)
    topics: dict[str, list[int]] = {}
    # Only topics that the client may describe, as in Kafka.
    for topic, number in found.partitions:
        if not context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(number)
    context.items += len(found.partitions)
    return TransactionState(
        transactional_id=name,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )
