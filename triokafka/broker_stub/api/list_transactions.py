"""ListTransactions (API key 66): list transactions. This broker has no transactions and returns an empty list.

Versions 0-2. v1: filter by duration (KIP-994). v2: filter by a pattern of transactional ids (KIP-1152).
"""

from __future__ import annotations

import re
from typing import Final

from triokafka import errors
from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from triokafka.security.acl import AclOperation, ResourceType

_STATES: Final = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    }
)  # fmt: skip


@handles(
    ListTransactionsRequest,
    versions=range(0, 3),
    accesses=[Access(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lambda request: ())],
)
async def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Check the filters and return an empty list."""
    if request.transactional_id_pattern:
        try:
            re.compile(request.transactional_id_pattern)
        except re.error as error:
            raise errors.InvalidRegularExpressionError(f"{request.transactional_id_pattern!r}: {error}") from None
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in _STATES]
    )
