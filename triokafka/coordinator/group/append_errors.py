"""Error codes for clients when an append to ``__consumer_offsets`` fails.

The client reacts to the code: it finds the coordinator again, rejoins, or retries.
"""

from __future__ import annotations

from typing import Final

from triokafka import errors

_COORDINATOR: Final[dict[type[errors.KafkaError], int]] = {
    errors.UnknownTopicOrPartitionError: errors.CoordinatorNotAvailableError.code,
    errors.NotEnoughReplicasError: errors.CoordinatorNotAvailableError.code,
    errors.NotEnoughReplicasAfterAppendError: errors.CoordinatorNotAvailableError.code,
    errors.RequestTimedOutError: errors.CoordinatorNotAvailableError.code,
    errors.NotLeaderForPartitionError: errors.NotCoordinatorError.code,
    errors.KafkaStorageError: errors.NotCoordinatorError.code,
    errors.MessageSizeTooLargeError: errors.UnknownError.code,
    errors.RecordListTooLargeError: errors.UnknownError.code,
}
_GROUP: Final = {**_COORDINATOR, errors.RequestTimedOutError: errors.RebalanceInProgressError.code}
_OFFSETS: Final = {
    **_COORDINATOR,
    errors.MessageSizeTooLargeError: errors.InvalidCommitOffsetSizeError.code,
    errors.RecordListTooLargeError: errors.InvalidCommitOffsetSizeError.code,
}


def _code(error: errors.KafkaError, table: dict[type[errors.KafkaError], int]) -> int:
    code = table.get(type(error))
    if code is not None:
        return code
    return error.code if isinstance(error, errors.BrokerResponseError) else errors.UnknownError.code


def coordinator_error(error: errors.KafkaError) -> int:
    """Return the error code for a failed operation of any kind."""
    return _code(error, _COORDINATOR)


def group_append_error(error: errors.KafkaError) -> int:
    """Return the error code for a failed append of group metadata. After a timeout the members rejoin."""
    return _code(error, _GROUP)


def offsets_append_error(error: errors.KafkaError) -> int:
    """Return the error code for a failed append of offsets. A commit that is too large has its own code."""
    return _code(error, _OFFSETS)
