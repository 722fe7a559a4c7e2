"""What a failed append to ``__consumer_offsets`` means for the client of a group.

The client reacts differently to each: it looks for the coordinator again, joins again, or tries the same once more.
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
    """The code for any operation of a coordinator that could not be carried out."""
    return _code(error, _COORDINATOR)


def group_append_error(error: KafkaError) -> int:
    """The code when a group's metadata could not be stored; after a timeout the members simply join again."""
    return _code(error, _GROUP)


def offsets_append_error(error: KafkaError) -> int:
    """The code when offsets could not be stored; too large a commit has a code of its own."""
    return _code(error, _OFFSETS)
