"""The error codes of transaction and group coordinators: what each of them means for a transaction."""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.client.producer.transactions.coordinator_call import CallOutcome

COORDINATOR_MOVED: Final = (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)
"""Another broker is the coordinator."""
FENCED: Final = (errors.InvalidProducerEpochError, errors.ProducerFencedError)
"""Another producer has a later epoch of this producer id."""
ID_LOST: Final = (errors.InvalidProducerIdMappingError, errors.UnknownProducerIdError)
"""The coordinator or a broker no longer knows the producer id."""
NOT_A_MEMBER: Final = (
    errors.IllegalGenerationError,
    errors.RebalanceInProgressError,
    errors.StaleMemberEpochError,
    errors.UnknownMemberIdError,
)
"""The consumer whose offsets are committed is not a member of its group's present generation."""


def error_of(code: int, what: str) -> errors.BrokerResponseError | None:
    """Return the error of a response about ``what``; None for code 0."""
    if not code:
        return None
    kind = errors.for_code(code)
    return kind(f"{what}: {kind.__name__}. {kind.advice}".rstrip())


def retry_after(error: errors.BrokerResponseError) -> CallOutcome | None:
    """Return how to retry after an error of a coordinator, None when a retry does not help."""
    if isinstance(error, COORDINATOR_MOVED):
        return CallOutcome.FIND_AGAIN
    if isinstance(error, errors.ConcurrentTransactionsError):
        return CallOutcome.RETRY_SOON
    if isinstance(error, (errors.CoordinatorLoadInProgressError, errors.RequestTimedOutError)):
        return CallOutcome.RETRY
    return None
