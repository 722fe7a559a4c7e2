"""ListTransactions (API key 66): list the transactional ids that this broker coordinates (KIP-664).

Versions 0-2. v1: filter by duration (KIP-994). v2: filter by a pattern of transactional ids (KIP-1152),
in RE2's syntax.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.coordinator.regular_expressions import compile_regular_expression
from triokafka.coordinator.transaction.description import TransactionFilter
from triokafka.coordinator.transaction.state import TITLES
from triokafka.protocol.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from triokafka.security.acl import AclOperation, ResourceType


@handles(
    ListTransactionsRequest,
    versions=range(0, 3),
    accesses=[Access(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lambda request: ())],
)
async def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """List the ids that pass all filters and that the client may describe."""
    asked = request.transactional_id_pattern
    pattern = compile_regular_expression(asked) if asked else None
    unknown = [state for state in request.state_filters if state not in TITLES]
    if request.state_filters and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown)
    wanted = TransactionFilter(
        states=frozenset(request.state_filters) - frozenset(unknown),
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=pattern,
    )
    found = await context.transactions.list_transactions(wanted)
    context.items += len(found)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.title,
            )
            for one in found
            if not context.denied(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )
