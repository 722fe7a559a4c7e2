"""Field declarations that many messages share, so that one sentence and one list of errors serves all of them.

Each name is the field's usual name. A declaration adds what differs, for example ``versions`` or ``nullable``::

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
"""

from __future__ import annotations

from functools import partial
from typing import Final

from triokafka.protocol.declaration import field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid

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
quorum_error_code = partial(
    field,
    Int16,
    doc="The error code of the whole request; 0 means success.",
    errors=(
        "ClusterAuthorizationFailedError",
        "InconsistentClusterIdError",
        "InvalidRequestError",
        "BrokerNotAvailableError",
    ),
)
reassignments_error_code = partial(
    field,
    Int16,
    doc="The error code; 0 means success.",
    errors=("ClusterAuthorizationFailedError", "NotControllerError", "RequestTimedOutError"),
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
is_internal = partial(field, Boolean, doc="Whether the topic is internal, such as ``__consumer_offsets``.")
current_leader_epoch = partial(
    field,
    Int32,
    default=-1,
    ignorable=True,
    doc="The leader epoch that the client knows; -1 to skip the check.",
    errors=("FencedLeaderEpochError", "UnknownLeaderEpochError"),
)
leader_epoch = partial(field, Int32, default=-1, doc="The leader's epoch; -1 when unknown.")
committed_leader_epoch = partial(
    field, Int32, default=-1, ignorable=True, doc="The leader epoch of the last record read; -1 when unknown."
)
committed_metadata = partial(
    field, String, doc="The committer's own text; null is the same as empty.", errors=("OffsetMetadataTooLargeError",)
)
eligible_leader_replicas = partial(
    field,
    Array(Int32),
    default=None,
    doc="Replicas outside the in-sync ones that are complete up to the high watermark all the same; null when "
    "not known.",
)
last_known_elr = partial(
    field, Array(Int32), default=None, doc="The last known eligible leader replicas; null when not known."
)
isolation_level = partial(field, Int8, doc="0 to see all records, 1 to see only those of committed transactions.")
topic_authorized_operations = partial(
    field,
    Int32,
    default=-(2**31),
    doc="The operations that the client may perform on the topic, as a bit field; -2147483648 if not requested.",
)

cluster_id = partial(
    field,
    String,
    doc="The cluster that the sender belongs to; null when it does not know.",
    errors=("InconsistentClusterIdError",),
)
include_cluster_authorized_operations = partial(
    field, Boolean, doc="Whether to return the operations that the client may perform on the cluster."
)
cluster_authorized_operations = partial(
    field,
    Int32,
    default=-(2**31),
    doc="The operations that the client may perform on the cluster, as a bit field; -2147483648 if not requested.",
)
rack = partial(field, String, default=None, doc="The broker's rack; null when it has none.")
broker_epoch = partial(
    field,
    Int64,
    default=-1,
    doc="The epoch of the broker's registration; -1 when it does not say.",
    errors=("StaleBrokerEpochError",),
)
voter_id = partial(
    field,
    Int32,
    default=-1,
    doc="The node that the request is meant for; -1 when the sender does not say.",
    errors=("InvalidVoterKeyError",),
)
voter_directory_id = partial(
    field,
    Uuid,
    doc="The id of the directory that holds the voter's log; nil when the sender does not know.",
    errors=("InvalidVoterKeyError",),
)

group_id = partial(
    field, String, doc="The group's id.", errors=("InvalidGroupIdError", "GroupAuthorizationFailedError")
)
groups = partial(
    field, Array(String), doc="The groups.", errors=("InvalidGroupIdError", "GroupAuthorizationFailedError")
)
group_instance_id = partial(
    field,
    String,
    default=None,
    doc="The name of a static member, which survives its restarts; null for a dynamic one.",
    errors=("FencedInstanceIdError",),
)
static_member_name = partial(field, String, default=None, doc="The static member's name; null for a dynamic one.")
member_id = partial(field, String, doc="The member id that the coordinator assigned.", errors=("UnknownMemberIdError",))
committing_member_id = partial(
    field, String, doc="The member; empty for a committer that is not a member.", errors=("UnknownMemberIdError",)
)
generation_id = partial(
    field, Int32, doc="The generation that the member believes to be current.", errors=("IllegalGenerationError",)
)
protocol_type = partial(field, String, default=None, doc="The kind of group.")

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

acl_resource_type = partial(
    field, Int8, doc="The resource type: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."
)
acl_resource_name_filter = partial(field, String, doc="Name of the resource; null matches every name.")
acl_pattern_type = partial(field, Int8, default=3, doc="The pattern type of the resource name: 3 literal, 4 prefix.")
acl_pattern_type_filter = partial(
    field,
    Int8,
    default=3,
    doc="The pattern type of the resource name: 3 literal, 4 prefix, 1 any, 2 every pattern that matches the name.",
)
