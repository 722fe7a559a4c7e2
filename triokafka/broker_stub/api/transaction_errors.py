"""Error codes of the transaction APIs by version: older clients know fewer."""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.request.context import RequestContext
from triokafka.coordinator.group.append_errors import coordinator_error
from triokafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from triokafka.security.acl import AclOperation, ResourceType

WRITE: Final = AclOperation.WRITE
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


def transaction_error(error: KafkaError | int, context: RequestContext, *, fenced_since: int) -> int:
    """Return the code of ``error``; clients before version ``fenced_since`` do not know PRODUCER_FENCED."""
    code = error if isinstance(error, int) else coordinator_error(error)
    if code == ProducerFencedError.code and context.version < fenced_since:
        return InvalidProducerEpochError.code
    return code
