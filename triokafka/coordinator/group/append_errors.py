"""Error codes for clients when an append to ``__consumer_offsets`` fails.

The client reacts to the code: it finds the coordinator again, rejoins, or retries.
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownError,
    UnknownTopicOrPartitionError,
)

_COORDINATOR: Final[dict[type[KafkaError], int]] = {
    UnknownTopicOrPartitionError: CoordinatorNotAvailableError.code,
    NotEnoughReplicasError: CoordinatorNotAvailableError.code,
    NotEnoughReplicasAfterAppendError: CoordinatorNotAvailableError.code,
    RequestTimedOutError: CoordinatorNotAvailableError.code,
    NotLeaderForPartitionError: NotCoordinatorError.code,
    KafkaStorageError: NotCoordinatorError.code,
    MessageSizeTooLargeError: UnknownError.code,
    RecordListTooLargeError: UnknownError.code,
}
_GROUP: Final = {**_COORDINATOR, RequestTimedOutError: RebalanceInProgressError.code}
_OFFSETS: Final = {
    **_COORDINATOR,
    MessageSizeTooLargeError: InvalidCommitOffsetSizeError.code,
    RecordListTooLargeError: InvalidCommitOffsetSizeError.code,
}


def _code(error: KafkaError, table: dict[type[KafkaError], int]) -> int:
    code = table.get(type(error))
    if code is not None:
        return code
    return error.code if isinstance(error, BrokerResponseError) else UnknownError.code


def coordinator_error(error: KafkaError) -> int:
    """Return the error code for a failed operation of any kind."""
    return _code(error, _COORDINATOR)


def group_append_error(error: KafkaError) -> int:
    """Return the error code for a failed append of group metadata. After a timeout the members rejoin."""
    return _code(error, _GROUP)


def offsets_append_error(error: KafkaError) -> int:
    """Return the error code for a failed append of offsets. A commit that is too large has its own code."""
    return _code(error, _OFFSETS)
