"""Every error that triokafka raises: one class per Kafka error code, and the client's own.

The names are kafka-python's, so that its users can keep their ``except`` clauses. Each class has three properties:
``retriable`` (a retry may succeed), ``invalid_metadata`` (the client's metadata is out of date), and ``advice`` (the
remedy, as a sentence). This module imports nothing else of the package. It is one list, ordered as Kafka's table of
error codes, and has hardly any logic: one searches it for a name or a code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, Self, TypeVar

E = TypeVar("E", bound=Exception)


class KafkaError(RuntimeError):
    """Root of all errors of this package; a `RuntimeError`, as in kafka-python and aiokafka."""

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    advice: str = ""

    def fresh_copy(self) -> Self:
        """Return an equal error without traceback and cause, to store it, or to raise a stored error.

        A stored error that is raised itself keeps every frame that it passes, and with it their locals: requests,
        buffers, and usually its own holder, which makes a reference cycle.
        """
        made = type(self).__new__(type(self))
        made.args = self.args
        made.__dict__.update(self.__dict__)
        return made


def raisable_copy(error: E) -> E:
    """Return an equal error with the same cause and a separate traceback, to raise a stored error.

    Tasks that raise one object at the same time would mix up its traceback, which would also keep their frames alive
    as long as its holder lives.
    """
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    if error.__cause__ is not None:
        made.__cause__ = error.__cause__
    return made


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The client asked the wrong broker: refresh the metadata, then try again."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """A broker answered with an error code (``code``; ``errno`` is kafka-python's name for it).

    ``message`` is Kafka's name of the code, such as NOT_COORDINATOR, and ``description`` says what it means.
    """

    code: ClassVar[int] = -1
    errno: ClassVar[int] = -1
    message: ClassVar[str] = ""
    description: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.errno = cls.code
        if "message" not in cls.__dict__:
            cls.message = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).upper()
        cls.description = (cls.__doc__ or "").partition("\n")[0]


def in_words(kind: type[BrokerResponseError]) -> str:
    """Return the meaning of an error class as the end of a sentence, for answers that have only an error code."""
    summary = (kind.__doc__ or kind.__name__).partition("\n")[0].rstrip(".")
    return summary[:1].lower() + summary[1:]


class AuthenticationError(KafkaError):
    """The client and the broker do not accept each other: identity, credentials or security protocol.

    It is fatal: a client does not try again by itself, and every later call raises the same error.
    """

    advice = "Check security_protocol, the certificates and the credentials, then make a new client."


class TlsAuthenticationError(AuthenticationError):
    """One end refuses the other's certificate, or both have no TLS version or cipher in common."""

    advice = "Check ssl_cafile, ssl_certfile, the broker's host name and the dates of the certificates."


class SecurityProtocolMismatchError(AuthenticationError):
    """The broker's listener has another security protocol than the client; the message names those that fit."""

    advice = ""  # the message has it


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


class UnknownError(BrokerResponseError):
    """The broker failed with an unexpected error."""

    code = -1
    advice = "Look into the broker's log at the time of the request."


class OffsetOutOfRangeError(BrokerResponseError):
    """The offset is below the log's start or above its end.

    ``offsets`` has the refused offset by partition, if a consumer raises it.
    """

    code = 1
    advice = "Seek to the beginning or the end, or set auto_offset_reset."
    offsets: Mapping[tuple[str, int], int] = MappingProxyType({})


class CorruptRecordError(RetriableError, BrokerResponseError):
    """A record batch fails its checksum, or is not a record batch.

    ``next_offset`` is the offset after the batch, to which a consumer can `seek` to skip it; None if it is unknown.
    """

    code = 2
    message = "CORRUPT_MESSAGE"
    next_offset: int | None = None
    advice = "On produce, try again. On fetch, the bytes are damaged: check the broker's disk, or seek past the batch."


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """The broker does not have this topic or partition."""

    code = 3
    advice = "Create the topic, check its name, or wait for a new topic to reach every broker."

    @classmethod
    def of_partition(cls, message: str) -> Self:
        """Return the error for a partition that a known topic does not have."""
        error = cls(message)
        error.advice = "Choose one of its partitions, or add partitions to the topic."
        return error


class InvalidFetchRequestError(BrokerResponseError):
    """The fetch asked for an impossible number of bytes."""

    code = 4
    advice = "Check fetch_max_bytes and max_partition_fetch_bytes."


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The partition has no leader at the moment."""

    code = 5
    advice = "Try again: an election is under way, or all its replicas are down."


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """The broker does not lead the partition, or holds no replica of it."""

    code = 6
    advice = "Refresh the metadata and send the request to the leader."


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The request was not answered in time."""

    code = 7
    advice = "Try again; if it happens often, check the broker's load or raise request_timeout_ms."


class BrokerNotAvailableError(BrokerResponseError):
    """The broker is not available."""

    code = 8
    advice = "Check that the broker runs."


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The broker holds no usable replica of the partition."""

    code = 9
    advice = "Refresh the metadata and try again."


class MessageSizeTooLargeError(BrokerResponseError):
    """A batch is larger than the topic's max.message.bytes, or the request larger than max_request_size."""

    code = 10
    advice = "Send smaller records, or raise max.message.bytes of the topic and max_request_size of the producer."


class StaleControllerEpochError(BrokerResponseError):
    """The request comes from a controller that has been replaced."""

    code = 11
    advice = "Find the current controller."


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata string committed with an offset is too long."""

    code = 12
    advice = "Shorten the string, or raise offset.metadata.max.bytes on the broker."


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """The connection ended before the answer came."""

    code = 13
    advice = "Try again."


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """The coordinator is reading its state from the log."""

    code = 14
    advice = "Try again in a moment."


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """The group or transaction has no coordinator at the moment."""

    code = 15
    advice = "Try again; the coordinator is starting or moving."


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """The broker does not coordinate this group or transaction."""

    code = 16
    advice = "Look the coordinator up again."


class InvalidTopicError(BrokerResponseError):
    """The topic name is not allowed, or the topic is internal."""

    code = 17
    advice = "Use 1 to 249 of the characters a-z A-Z 0-9 . _ -"


class RecordListTooLargeError(BrokerResponseError):
    """The batches of a partition are larger than a log segment."""

    code = 18
    advice = "Send smaller batches, or raise segment.bytes."


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas are in sync than min.insync.replicas requires; nothing was written."""

    code = 19
    advice = "Try again once the replicas have caught up."


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """The records were written, but then too few replicas were in sync."""

    code = 20
    advice = "Try again; without idempotence this may write twice."


class InvalidRequiredAcksError(BrokerResponseError):
    """acks is not 0, 1 or all (-1)."""

    code = 21
    advice = "Set acks to 0, 1 or 'all'."


class IllegalGenerationError(BrokerResponseError):
    """The generation is not the group's current one."""

    code = 22
    advice = "Rejoin the group."


class InconsistentGroupProtocolError(BrokerResponseError):
    """The member shares no protocol type or assignor with the group."""

    code = 23
    advice = "Configure all members with at least one common assignor."


class InvalidGroupIdError(BrokerResponseError):
    """The group id is empty or otherwise not allowed."""

    code = 24
    advice = "Set group_id."


class UnknownMemberIdError(BrokerResponseError):
    """The coordinator does not know this member: its session expired, or it left."""

    code = 25
    advice = "Rejoin with an empty member id; if it happens often, raise session_timeout_ms."


class InvalidSessionTimeoutError(BrokerResponseError):
    """The session timeout is outside the broker's bounds."""

    code = 26
    advice = "Stay within group.min.session.timeout.ms and group.max.session.timeout.ms."


class RebalanceInProgressError(BrokerResponseError):
    """The group is rebalancing."""

    code = 27
    advice = "Rejoin the group; the consumer does so by itself."


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """The offsets of one commit do not fit into a batch."""

    code = 28
    advice = "Commit fewer partitions at once, or shorten their metadata."


class TopicAuthorizationFailedError(AuthorizationError):
    """The principal may not do this with the topic."""

    code = 29
    advice = "Grant the operation on the topic."


class GroupAuthorizationFailedError(AuthorizationError):
    """The principal may not do this with the group."""

    code = 30
    advice = "Grant READ (or DESCRIBE, DELETE) on the group."


class ClusterAuthorizationFailedError(AuthorizationError):
    """The principal may not do this with the cluster."""

    code = 31
    advice = "Grant the operation on the cluster."


class InvalidTimestampError(BrokerResponseError):
    """The record's timestamp is too far from the broker's clock."""

    code = 32
    advice = "Check the clocks and message.timestamp.before.max.ms, message.timestamp.after.max.ms."


class UnsupportedSaslMechanismError(AuthenticationError, BrokerResponseError):
    """The listener does not offer this SASL mechanism."""

    code = 33
    advice = "Choose one of the mechanisms that the broker supports."


class IllegalSaslStateError(AuthenticationError, BrokerResponseError):
    """The request does not fit the state of the SASL exchange."""

    code = 34
    advice = "Check that both ends use the same security_protocol."


class UnsupportedVersionError(BrokerResponseError):
    """The broker does not support the API version that this call needs."""

    code = 35
    advice = "Upgrade the broker, or leave out the newer option."


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic with that name already exists."""

    code = 36
    advice = "Choose another name, or use the existing topic."


class InvalidPartitionsError(BrokerResponseError):
    """The number of partitions is not allowed."""

    code = 37
    advice = "Request at least one partition, and never fewer than the topic already has."


class InvalidReplicationFactorError(BrokerResponseError):
    """The replication factor is below 1 or above the number of live brokers."""

    code = 38
    advice = "Lower the replication factor, or start more brokers."


class InvalidReplicationAssignmentError(BrokerResponseError):
    """The replica assignment is not allowed."""

    code = 39
    advice = "Name distinct, existing brokers, and the same number of them for each partition."


class InvalidConfigurationError(BrokerResponseError):
    """A configuration value is not allowed."""

    code = 40
    message = "INVALID_CONFIG"
    advice = "Check the name and the value of the configuration."


class NotControllerError(RetriableError, BrokerResponseError):
    """The broker is not the active controller."""

    code = 41
    advice = "Find the controller and send the request there."


class InvalidRequestError(BrokerResponseError):
    """The request contradicts itself or the protocol."""

    code = 42
    advice = "See the broker's message, if there is one."


class UnsupportedForMessageFormatError(BrokerResponseError):
    """The log's message format does not allow this."""

    code = 43
    advice = "Use record batches of format 2."


class PolicyViolationError(BrokerResponseError):
    """A policy of the cluster forbids this."""

    code = 44
    advice = "Ask the administrator who set the policy."


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """The broker has not received earlier records of the same producer."""

    code = 45
    advice = "The batch was not written. The producer restores the order by itself, if that loses no record."


class DuplicateSequenceNumberError(BrokerResponseError):
    """The broker already has this batch."""

    code = 46
    advice = "No action is necessary: the batch is in the log."


class InvalidProducerEpochError(BrokerResponseError):
    """A newer instance of this producer exists."""

    code = 47
    advice = "Create a new producer, or find out which other program uses the transactional id."


class InvalidTxnStateError(BrokerResponseError):
    """The transaction's state does not allow this operation."""

    code = 48
    advice = "Abort the transaction, and begin a new one."


class InvalidProducerIdMappingError(BrokerResponseError):
    """The producer id does not belong to the transactional id."""

    code = 49
    advice = "Create a new producer."


class InvalidTransactionTimeoutError(BrokerResponseError):
    """The transaction timeout is above the broker's maximum."""

    code = 50
    advice = "Stay below transaction.max.timeout.ms."


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """The previous transaction is still being completed."""

    code = 51
    advice = "Try again in a moment."


class TransactionCoordinatorFencedError(BrokerResponseError):
    """The marker comes from a coordinator that has been replaced."""

    code = 52
    advice = "No action is necessary: the new coordinator completes the transaction."


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """The principal may not use the transactional id."""

    code = 53
    advice = "Grant WRITE on the transactional id."


class SecurityDisabledError(BrokerResponseError):
    """The broker runs without an authorizer."""

    code = 54
    advice = "Configure an authorizer before managing ACLs."


class OperationNotAttemptedError(BrokerResponseError):
    """The broker did not attempt the operation, because another part of the request failed."""

    code = 55
    advice = "Correct the other part and send the request again."


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """The broker cannot read or write the log."""

    code = 56
    message = "KAFKA_STORAGE_ERROR"
    advice = "Check the broker's disk and its server log."


class LogDirNotFoundError(BrokerResponseError):
    """The broker has no such log directory."""

    code = 57
    advice = "Name one of its log.dirs."


class SaslAuthenticationFailedError(AuthenticationError, BrokerResponseError):
    """The credentials were refused."""

    code = 58
    advice = "Check user, password and mechanism."


class UnknownProducerIdError(BrokerResponseError):
    """The broker no longer knows the producer: its records were deleted."""

    code = 59
    advice = "The producer begins a new epoch by itself."


class ReassignmentInProgressError(BrokerResponseError):
    """A reassignment of the partition is under way."""

    code = 60
    advice = "Wait for the reassignment, or cancel it."


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """The broker does not offer delegation tokens."""

    code = 61
    advice = "Use another mechanism."


class DelegationTokenNotFoundError(BrokerResponseError):
    """No such delegation token."""

    code = 62
    advice = "Create a new one."


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """The principal neither owns nor may renew the token."""

    code = 63
    advice = "Use the owner's credentials."


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """Tokens are not managed over this kind of connection."""

    code = 64
    advice = "Connect with SASL or mutual TLS."


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    """The principal may not manage tokens."""

    code = 65
    advice = "Grant the operation."


class DelegationTokenExpiredError(BrokerResponseError):
    """The delegation token has expired."""

    code = 66
    advice = "Create a new one."


class InvalidPrincipalTypeError(BrokerResponseError):
    """The principal's type is not supported."""

    code = 67
    advice = "Use the type User."


class NonEmptyGroupError(BrokerResponseError):
    """The group still has members."""

    code = 68
    advice = "Stop its consumers first."


class GroupIdNotFoundError(BrokerResponseError):
    """No such group."""

    code = 69
    advice = "Check the group id."


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """The broker dropped the fetch session."""

    code = 70
    advice = "The consumer opens a new one by itself."


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """The fetch session is at another epoch."""

    code = 71
    advice = "The consumer opens a new one by itself."


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """The leader has no listener with the name of the listener that received the request."""

    code = 72
    advice = "Give all brokers the same listeners."


class TopicDeletionDisabledError(BrokerResponseError):
    """The cluster does not delete topics."""

    code = 73
    advice = "Set delete.topic.enable."


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """The request names an older leader epoch than the broker has."""

    code = 74
    advice = "Refresh the metadata."


class UnknownLeaderEpochError(RetriableError, BrokerResponseError):
    """The request names a newer leader epoch than the broker has."""

    code = 75
    advice = "Try again: the broker will catch up."


class UnsupportedCompressionTypeError(BrokerResponseError):
    """The request's version cannot carry this codec."""

    code = 76
    advice = "Use a newer client for zstd."


class StaleBrokerEpochError(BrokerResponseError):
    """The request has an old broker epoch: the broker has registered again."""

    code = 77
    advice = "No action is necessary: the broker continues with its new epoch."


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """The leader is new and does not know the high watermark yet."""

    code = 78
    advice = "Try again in a moment."


class MemberIdRequiredError(BrokerResponseError):
    """The coordinator has assigned a member id, and the member must join again with it."""

    code = 79
    advice = "The consumer does so by itself."


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The preferred leader is down or not in sync."""

    code = 80
    advice = "Try again later."


class GroupMaxSizeReachedError(BrokerResponseError):
    """The group has reached its maximum number of members."""

    code = 81
    advice = "Raise group.max.size, or run fewer consumers."


class FencedInstanceIdError(BrokerResponseError):
    """Another member uses the same group_instance_id."""

    code = 82
    advice = "Give every instance its own group_instance_id."


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """No replica is eligible to become leader."""

    code = 83
    advice = "Restart a broker whose replica was in sync."


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """The partition already has the right leader."""

    code = 84
    advice = "No action is necessary."


class NoReassignmentInProgressError(BrokerResponseError):
    """No reassignment of the partition is in progress."""

    code = 85
    advice = "No action is necessary."


class GroupSubscribedToTopicError(BrokerResponseError):
    """The group is subscribed to the topic, so its offsets cannot be deleted."""

    code = 86
    advice = "Stop the group's consumers of that topic first."


class InvalidRecordError(BrokerResponseError):
    """A record breaks a rule of the topic."""

    code = 87
    advice = "The message names the record; a compacted topic needs keys."


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """Offsets of an open transaction are pending."""

    code = 88
    advice = "Try again once the transaction has ended."


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """The quota is used up."""

    code = 89
    advice = "Try again after the throttle time."


class ProducerFencedError(BrokerResponseError):
    """A newer producer uses the same transactional id."""

    code = 90
    advice = "Stop this producer."


class ResourceNotFoundError(BrokerResponseError):
    """The resource does not exist."""

    code = 91
    advice = "Check the resource's name."


class DuplicateResourceError(BrokerResponseError):
    """The request names a resource twice."""

    code = 92
    advice = "Name each resource once."


class UnacceptableCredentialError(BrokerResponseError):
    """The credential is too weak or malformed."""

    code = 93
    advice = "Use more iterations, and a salt."


class InconsistentVoterSetError(BrokerResponseError):
    """Sender and receiver have different sets of voters."""

    code = 94
    advice = "Compare the quorum's configuration on both nodes."


class InvalidUpdateVersionError(BrokerResponseError):
    """The feature cannot be set to that level."""

    code = 95
    advice = "Use a level that the cluster supports."


class FeatureUpdateFailedError(BrokerResponseError):
    """The features could not be changed."""

    code = 96
    advice = "Look into the controller's log."


class PrincipalDeserializationFailureError(BrokerResponseError):
    """The forwarded principal could not be read."""

    code = 97
    advice = "Give all brokers the same principal builder."


class SnapshotNotFoundError(BrokerResponseError):
    """The metadata snapshot does not exist."""

    code = 98
    advice = "Fetch the newest snapshot."


class PositionOutOfRangeError(BrokerResponseError):
    """The position is outside the snapshot."""

    code = 99
    advice = "Fetch the snapshot from its beginning."


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """The broker does not know the topic id."""

    code = 100
    advice = "Refresh the metadata: the topic was deleted or is new."


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """Another live broker has this node id."""

    code = 101
    advice = "Give every broker its own node.id."


class BrokerIdNotRegisteredError(BrokerResponseError):
    """No broker with this id is registered."""

    code = 102
    advice = "Register the broker first."


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    """The log belongs to another topic with the same name."""

    code = 103
    advice = "Refresh the metadata."


class InconsistentClusterIdError(BrokerResponseError):
    """The request is for another cluster."""

    code = 104
    advice = "Check the addresses."


class TransactionalIdNotFoundError(BrokerResponseError):
    """The transactional id does not exist."""

    code = 105
    advice = "Check the transactional id."


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """The fetch session mixes names and ids of topics."""

    code = 106
    advice = "The consumer opens a new one by itself."


class IneligibleReplicaError(BrokerResponseError):
    """A replica of the new in-sync set is fenced or shutting down."""

    code = 107
    advice = "No action is necessary: the leader tries again."


class NewLeaderElectedError(BrokerResponseError):
    """The change succeeded, and another broker is now the leader."""

    code = 108
    advice = "Refresh the metadata."


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """The offset is only in tiered storage."""

    code = 109
    advice = "Read the offset from tiered storage."


class FencedMemberEpochError(BrokerResponseError):
    """The coordinator has fenced the member."""

    code = 110
    advice = "Release all partitions and join again."


class UnreleasedInstanceIdError(BrokerResponseError):
    """The instance id is still in use in the group."""

    code = 111
    advice = "Wait until its session has expired, or stop the other member."


class UnsupportedAssignorError(BrokerResponseError):
    """The group does not support the assignor."""

    code = 112
    advice = "Use an assignor that the coordinator supports."


class StaleMemberEpochError(BrokerResponseError):
    """The member's epoch is not the current one."""

    code = 113
    advice = "Try again with the epoch from the next heartbeat."


class MismatchedEndpointTypeError(BrokerResponseError):
    """The request was sent to a broker instead of a controller, or the other way round."""

    code = 114
    advice = "Send the request to the other kind of endpoint."


class UnsupportedEndpointTypeError(BrokerResponseError):
    """The endpoint type is not supported."""

    code = 115
    advice = "Use brokers or controllers."


class UnknownControllerIdError(BrokerResponseError):
    """The controller does not exist."""

    code = 116
    advice = "Check the controller's id."


class UnknownSubscriptionIdError(BrokerResponseError):
    """The telemetry subscription is out of date."""

    code = 117
    advice = "The client requests a new subscription by itself."


class TelemetryTooLargeError(BrokerResponseError):
    """The pushed metrics are too large."""

    code = 118
    advice = "Push fewer metrics."


class InvalidRegistrationError(BrokerResponseError):
    """The controller refuses the broker's registration."""

    code = 119
    advice = "Compare the broker's features, directories and listeners with those of the other brokers."


class TransactionAbortableError(BrokerResponseError):
    """The transaction cannot continue."""

    code = 120
    advice = "Abort the transaction, and begin a new one."


class InvalidRecordStateError(BrokerResponseError):
    """The record's state does not allow the acknowledgement."""

    code = 121
    advice = "No action is necessary: the broker delivers the record again."


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """The broker dropped the share session."""

    code = 122
    advice = "The consumer opens a new one by itself."


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """The share session has another epoch."""

    code = 123
    advice = "The consumer opens a new one by itself."


class FencedStateEpochError(BrokerResponseError):
    """The share group's state has a newer epoch."""

    code = 124
    advice = "Read the state again."


class InvalidVoterKeyError(BrokerResponseError):
    """The voter's key does not match the receiver's."""

    code = 125
    advice = "Compare the directory ids."


class DuplicateVoterError(BrokerResponseError):
    """The voter is already in the set."""

    code = 126
    advice = "No action is necessary."


class VoterNotFoundError(BrokerResponseError):
    """The voter is not in the set."""

    code = 127
    advice = "Check the voter's id."


class InvalidRegularExpressionError(BrokerResponseError):
    """The regular expression cannot be compiled."""

    code = 128
    advice = "Use RE2 syntax."


class RebootstrapRequiredError(BrokerResponseError):
    """The client's metadata of the cluster is too old."""

    code = 129
    advice = "The client reconnects through bootstrap_servers by itself."


class StreamsInvalidTopologyError(BrokerResponseError):
    """The topology is not valid."""

    code = 130
    advice = "Correct the topology."


class StreamsInvalidTopologyEpochError(BrokerResponseError):
    """The topology's epoch is not valid."""

    code = 131
    advice = "Raise the epoch by one."


class StreamsTopologyFencedError(BrokerResponseError):
    """The topology's epoch is out of date."""

    code = 132
    advice = "Restart the application with the newest topology."


class ShareSessionLimitReachedError(RetriableError, BrokerResponseError):
    """The broker has reached its maximum number of share sessions."""

    code = 133
    advice = "Try again later."


class ProtocolError(KafkaError):
    """Bytes that violate the protocol: truncated, oversized or malformed.

    Args:
        message: the problem.
        path: the field, dotted from the message's name, as in ``FetchResponse.responses.partitions``.
        offset: position in the frame, in bytes, where decoding stopped; -1 if there is none.
    """

    def __init__(self, message: str, *, path: str = "", offset: int = -1) -> None:
        super().__init__(message, path, offset)
        self.message = message
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        at = f" at byte {self.offset}" if self.offset >= 0 else ""
        return f"{self.message}{where}{at}"


class DecompressedSizeError(CorruptRecordError):
    """A batch without a fault so far decompresses to more bytes than the consumer allows.

    ``corrupt_batch_policy="skip"`` does not skip it: raise ``max_decompressed_batch_bytes`` to read it, or seek.
    """


class UnencodableValueError(ProtocolError):
    """A value of the caller does not fit its field in a request; nothing was sent. Correct the value."""


class UnansweredItemError(KafkaError):
    """A broker's answer to a request about several items does not mention this item."""


class ConfigurationError(KafkaError):
    """An invalid configuration name or value; the message gives the nearest valid one."""


class KafkaConnectionError(InvalidMetadataError):
    """The connection failed, or ended before the answer arrived."""


class KafkaTimeoutError(RetriableError):
    """The operation did not finish within its timeout."""


class BufferTimeoutError(KafkaTimeoutError):
    """No buffer space within ``max_block_ms``: send more slowly, or raise ``buffer_memory``."""


class BufferFullError(RetriableError):
    """``send_nowait`` found no buffer space: let the event loop run, then try again, or await ``send``."""


class MetadataNotReadyError(RetriableError):
    """``send_nowait`` was called for a topic whose partitions are not known yet: try again, or await ``send``."""


class NodeNotReadyError(RetriableError):
    """No connection to the broker is ready for a request."""


class NoOffsetForPartitionError(KafkaError):
    """The group has no committed offset, and ``auto_offset_reset`` is ``"none"``: seek, or set it.

    ``partitions`` are those without an offset.
    """

    partitions: frozenset[tuple[str, int]] = frozenset()


class LogTruncationError(KafkaError):
    """The log was truncated below the consumer's position, and ``auto_offset_reset`` is ``"none"``.

    Every call for records raises it until the program seeks on the partitions. ``divergent_offsets`` has, by partition,
    the offset up to which the log still equals the records that were read; None if unknown.
    """

    divergent_offsets: Mapping[tuple[str, int], int | None] = MappingProxyType({})


class CommitFailedError(KafkaError):
    """The committing member no longer owns the partitions. Their new owners read the records again."""


class MaxPollIntervalExceededError(KafkaError):
    """The program did not poll within ``max_poll_interval_ms``: the member left its group; the next call rejoins."""


class WakeupError(KafkaError):
    """`Consumer.wakeup` was called. This is not a failure; the next call continues."""


class SerializationError(KafkaError, TypeError):
    """A key or value cannot be sent: its serializer failed, or there is no serializer and it is not bytes."""


class RecordDeserializationError(KafkaError):
    """A deserializer failed on a record; the position stays at it. Seek past it, or correct the deserializer."""


class TransactionAbortedError(KafkaError):
    """The transaction was aborted: none of its records and offsets take effect. Its cause is the reason, if any.

    A record whose delivery raises this was dropped before it was sent. Begin a new transaction, and send again.
    """


class IllegalStateError(KafkaError):
    """The object's state does not allow this call."""


class ClosedError(IllegalStateError):
    """The client is not open: its ``async with`` block has ended, or was not entered."""


class UnsupportedCodecError(KafkaError):
    """The compression codec needs a package that is not installed: install ``triokafka[compression]``."""


ERRORS: Final[dict[int, type[BrokerResponseError]]] = {
    cls.code: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, BrokerResponseError) and "code" in cls.__dict__ and cls.code != -1
}
ERRORS[-1] = UnknownError


def for_code(code: int) -> type[BrokerResponseError]:
    """Return the exception class for a protocol error code; ``UnknownError`` for unknown codes."""
    return ERRORS.get(code, UnknownError)


class ErrorCategory(StrEnum):
    """The reaction of a transactional program to an error (KIP-1050)."""

    RETRIABLE = "retriable"
    """Repeat the call."""
    REFRESH_RETRIABLE = "refresh-retriable"
    """Look up leader or coordinator again, and repeat the call; the clients do both themselves."""
    ABORTABLE = "abortable"
    """Abort the transaction, and begin a new one with the same producer."""
    APPLICATION_RECOVERABLE = "application-recoverable"
    """Close the producer or the consumer, and start it again; its position is the last committed one."""
    INVALID_CONFIGURATION = "invalid-configuration"
    """Change the configuration, the permissions or the request: repeating the call does not help."""


_REFRESH_RETRIABLE: Final = (InvalidMetadataError, CoordinatorNotAvailableError, NotCoordinatorError)
_APPLICATION_RECOVERABLE: Final = (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
    UnknownMemberIdError,
)
_INVALID_CONFIGURATION: Final = (
    AuthenticationError,
    AuthorizationError,
    ConfigurationError,
    InvalidReplicationFactorError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


def category_of(error: Exception) -> ErrorCategory:
    """Return the reaction of a transactional program to ``error``. Errors of no other category are abortable."""
    if isinstance(error, _APPLICATION_RECOVERABLE):
        return ErrorCategory.APPLICATION_RECOVERABLE
    if isinstance(error, _INVALID_CONFIGURATION):
        return ErrorCategory.INVALID_CONFIGURATION
    if isinstance(error, _REFRESH_RETRIABLE):
        return ErrorCategory.REFRESH_RETRIABLE
    if isinstance(error, RetriableError):
        return ErrorCategory.RETRIABLE
    return ErrorCategory.ABORTABLE


def first_leaf(error: BaseException) -> BaseException:
    """Return the first error in a group that is not a group itself; an error that is no group is returned as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
