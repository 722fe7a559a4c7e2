"""DescribeTransactions (API key 65): the state of transactions by transactional id. This broker has no transactions.

Version 0.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
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
    accesses=[Access(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lambda request: request.transactional_ids)],
    on_error=_failed,
)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Return TRANSACTIONAL_ID_NOT_FOUND for each id that the client may describe."""
    return DescribeTransactionsResponse(
        transaction_states=[_state(name, context) for name in request.transactional_ids]
    )


def _state(name: str, context: RequestContext) -> TransactionState:
    kind = ResourceType.TRANSACTIONAL_ID
    denied = context.denied(AclOperation.DESCRIBE, kind, name)
    error = denial(kind) if denied else errors.TransactionalIdNotFoundError
    return TransactionState(error_code=error.code, transactional_id=name, producer_id=-1, producer_epoch=-1)
