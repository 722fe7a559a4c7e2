"""Field declarations that many messages share, so that one sentence and one list of errors serves all of them.

Each name is the field's usual name. A declaration adds what differs, for example ``versions`` or ``nullable``::

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
"""

from __future__ import annotations

from functools import partial
from typing import Final

from triokafka.protocol.declaration import field
from triokafka.protocol.primitives import Int8, Int16, Int32, String

COORDINATOR_ERRORS: Final = (
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "NotCoordinatorError",
)
"""Errors of every request that only the coordinator of a group or a transactional id serves."""

GROUP_ERRORS: Final = (*COORDINATOR_ERRORS, "InvalidGroupIdError", "GroupAuthorizationFailedError")
"""Errors of every request that names a group."""

TRANSACTION_ERRORS: Final = (
    *COORDINATOR_ERRORS,
    "InvalidProducerIdMappingError",
    "InvalidProducerEpochError",
    "ProducerFencedError",
    "InvalidTxnStateError",
    "ConcurrentTransactionsError",
)
"""Errors of every request that changes a transaction."""

throttle_time_ms = partial(
    field,
    Int32,
    doc="How many milliseconds the client must wait before its next request, because it exceeded a quota; 0 for none.",
)
error_message = partial(
    field, String, doc="The broker's description of the error; null without an error, or when there is no description."
)
scram_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=(
        "ClusterAuthorizationFailedError",
        "ResourceNotFoundError",
        "DuplicateResourceError",
        "UnacceptableCredentialError",
        "UnsupportedSaslMechanismError",
        "UnsupportedVersionError",
    ),
)
token_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=(
        "DelegationTokenAuthDisabledError",
        "DelegationTokenRequestNotAllowedError",
        "DelegationTokenAuthorizationFailedError",
        "DelegationTokenNotFoundError",
        "DelegationTokenOwnerMismatchError",
        "DelegationTokenExpiredError",
        "InvalidPrincipalTypeError",
        "UnsupportedVersionError",
    ),
)
acl_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=(
        "SecurityDisabledError",
        "ClusterAuthorizationFailedError",
        "InvalidRequestError",
        "UnsupportedVersionError",
    ),
)
timeout_ms = partial(
    field,
    Int32,
    doc="How many milliseconds the broker may take until the request is in effect.",
    errors=("RequestTimedOutError",),
)

topic_name = partial(
    field, String, doc="The topic's name.", errors=("UnknownTopicOrPartitionError", "TopicAuthorizationFailedError")
)
current_leader_epoch = partial(
    field,
    Int32,
    default=-1,
    ignorable=True,
    doc="The leader epoch that the client knows; -1 to skip the check.",
    errors=("FencedLeaderEpochError", "UnknownLeaderEpochError"),
)
committed_leader_epoch = partial(
    field, Int32, default=-1, ignorable=True, doc="The leader epoch of the last record read; -1 when unknown."
)

group_id = partial(
    field, String, doc="The group's id.", errors=("InvalidGroupIdError", "GroupAuthorizationFailedError")
)
group_instance_id = partial(
    field,
    String,
    default=None,
    doc="The name of a static member, which survives its restarts; null for a dynamic one.",
    errors=("FencedInstanceIdError",),
)
member_id = partial(field, String, doc="The member id that the coordinator assigned.", errors=("UnknownMemberIdError",))

transactional_id = partial(
    field, String, doc="The transactional id.", errors=("TransactionalIdAuthorizationFailedError",)
)
producer_epoch = partial(
    field,
    Int16,
    doc="The producer's epoch; the broker fences a producer with an older epoch than the current one.",
    errors=("InvalidProducerEpochError", "ProducerFencedError"),
)

resource_type = partial(
    field,
    Int8,
    doc="The kind of resource: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.",
    errors=("InvalidRequestError",),
)
resource_name = partial(
    field,
    String,
    doc="The resource: a topic's name, or a broker's id as text, empty for the default of all brokers.",
    errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "InvalidRequestError"),
)
config_source = partial(
    field,
    Int8,
    default=-1,
    ignorable=True,
    doc="The source of the value: 1 topic, 2 broker, 3 default of all brokers, 4 static broker "
    "file, 5 default, 6 logger, 7 client metrics, 8 group; -1 unknown.",
)
