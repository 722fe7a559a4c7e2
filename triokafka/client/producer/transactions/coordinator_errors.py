"""The error codes of transaction and group coordinators: what each of them means for a transaction."""

from __future__ import annotations

from typing import Final

from triokafka.client.producer.transactions.coordinator_call import CallOutcome
from triokafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    ProducerFencedError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    for_code,
)

COORDINATOR_MOVED: Final = (CoordinatorNotAvailableError, NotCoordinatorError)
"""Another broker is the coordinator."""
FENCED: Final = (InvalidProducerEpochError, ProducerFencedError)
"""Another producer has a later epoch of this producer id."""
ID_LOST: Final = (InvalidProducerIdMappingError, UnknownProducerIdError)
"""The coordinator or a broker no longer knows the producer id."""
NOT_A_MEMBER: Final = (
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
"""The consumer whose offsets are committed is not a member of its group's present generation."""


def error_of(code: int, what: str) -> BrokerResponseError | None:
    """Return the error of a response about ``what``; None for code 0."""
    if not code:
        return None
    kind = for_code(code)
    return kind(f"{what}: {kind.__name__}. {kind.advice}".rstrip())


def retry_after(error: BrokerResponseError) -> CallOutcome | None:
    """Return how to retry after an error of a coordinator, None when a retry does not help."""
    if isinstance(error, COORDINATOR_MOVED):
        return CallOutcome.FIND_AGAIN
    if isinstance(error, ConcurrentTransactionsError):
        return CallOutcome.RETRY_SOON
    if isinstance(error, (CoordinatorLoadInProgressError, RequestTimedOutError)):
        return CallOutcome.RETRY
    return None
