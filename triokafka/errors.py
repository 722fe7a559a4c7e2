"""Every error that triokafka raises: one class per Kafka error code, and the client's own.

The names are kafka-python's, so that ``except`` clauses carry over. Each class says whether trying again may help
(``retriable``), whether the client's picture of the cluster is out of date (``invalid_metadata``), and what a person
can do about it (``advice``). Nothing here imports anything else of the package.
"""

from __future__ import annotations

from typing import ClassVar, Final


class KafkaError(Exception):
    """Root of all errors of this package."""

    retriable: ClassVar[bool] = False
    invalid_metadata: ClassVar[bool] = False
    advice: ClassVar[str] = ""


class RetriableError(KafkaError):
    """The same call may succeed later."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The client asked the wrong broker: refresh the metadata, then try again."""

    invalid_metadata = True


class BrokerResponseError(KafkaError):
    """A broker answered with an error code (``code``)."""

    code: ClassVar[int] = -1


class AuthorizationError(BrokerResponseError):
    """The principal may not do this."""


class UnknownError(BrokerResponseError):
    """-1"""

    code = -1


class OffsetOutOfRangeError(BrokerResponseError):
    """1"""

    code = 1


class CorruptRecordError(RetriableError, BrokerResponseError):
    """2"""

    code = 2


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """3"""

    code = 3


class InvalidFetchRequestError(BrokerResponseError):
    """4"""

    code = 4


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """5"""

    code = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """6"""

    code = 6


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """7"""

    code = 7


class BrokerNotAvailableError(BrokerResponseError):
    """8"""

    code = 8


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """9"""

    code = 9


class MessageSizeTooLargeError(BrokerResponseError):
    """10"""

    code = 10


class StaleControllerEpochError(BrokerResponseError):
    """11"""

    code = 11


class OffsetMetadataTooLargeError(BrokerResponseError):
    """12"""

    code = 12


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """13"""

    code = 13


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """14"""

    code = 14


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """15"""

    code = 15


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """16"""

    code = 16


class InvalidTopicError(BrokerResponseError):
    """17"""

    code = 17


class RecordListTooLargeError(BrokerResponseError):
    """18"""

    code = 18


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """19"""

    code = 19


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """20"""

    code = 20


class InvalidRequiredAcksError(BrokerResponseError):
    """21"""

    code = 21


class IllegalGenerationError(BrokerResponseError):
    """22"""

    code = 22


class InconsistentGroupProtocolError(BrokerResponseError):
    """23"""

    code = 23


class InvalidGroupIdError(BrokerResponseError):
    """24"""

    code = 24


class UnknownMemberIdError(BrokerResponseError):
    """25"""

    code = 25


class InvalidSessionTimeoutError(BrokerResponseError):
    """26"""

    code = 26


class RebalanceInProgressError(BrokerResponseError):
    """27"""

    code = 27


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """28"""

    code = 28


class TopicAuthorizationFailedError(AuthorizationError):
    """29"""

    code = 29


class GroupAuthorizationFailedError(AuthorizationError):
    """30"""

    code = 30


class ClusterAuthorizationFailedError(AuthorizationError):
    """31"""

    code = 31


class InvalidTimestampError(BrokerResponseError):
    """32"""

    code = 32


class UnsupportedSaslMechanismError(BrokerResponseError):
    """33"""

    code = 33


class IllegalSaslStateError(BrokerResponseError):
    """34"""

    code = 34


class UnsupportedVersionError(BrokerResponseError):
    """35"""

    code = 35


class TopicAlreadyExistsError(BrokerResponseError):
    """36"""

    code = 36


class InvalidPartitionsError(BrokerResponseError):
    """37"""

    code = 37


class InvalidReplicationFactorError(BrokerResponseError):
    """38"""

    code = 38


class InvalidReplicationAssignmentError(BrokerResponseError):
    """39"""

    code = 39


class InvalidConfigurationError(BrokerResponseError):
    """40"""

    code = 40


class NotControllerError(RetriableError, BrokerResponseError):
    """41"""

    code = 41


class InvalidRequestError(BrokerResponseError):
    """42"""

    code = 42


class UnsupportedForMessageFormatError(BrokerResponseError):
    """43"""

    code = 43


class PolicyViolationError(BrokerResponseError):
    """44"""

    code = 44


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """45"""

    code = 45


class DuplicateSequenceNumberError(BrokerResponseError):
    """46"""

    code = 46


class InvalidProducerEpochError(BrokerResponseError):
    """47"""

    code = 47


class InvalidTxnStateError(BrokerResponseError):
    """48"""

    code = 48


class InvalidProducerIdMappingError(BrokerResponseError):
    """49"""

    code = 49


class InvalidTransactionTimeoutError(BrokerResponseError):
    """50"""

    code = 50


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """51"""

    code = 51


class TransactionCoordinatorFencedError(BrokerResponseError):
    """52"""

    code = 52


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """53"""

    code = 53


class SecurityDisabledError(BrokerResponseError):
    """54"""

    code = 54


class OperationNotAttemptedError(BrokerResponseError):
    """55"""

    code = 55


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """56"""

    code = 56


class LogDirNotFoundError(BrokerResponseError):
    """57"""

    code = 57


class SaslAuthenticationFailedError(BrokerResponseError):
    """58"""

    code = 58


class UnknownProducerIdError(BrokerResponseError):
    """59"""

    code = 59


class ReassignmentInProgressError(BrokerResponseError):
    """60"""

    code = 60


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """61"""

    code = 61


class DelegationTokenNotFoundError(BrokerResponseError):
    """62"""

    code = 62


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """63"""

    code = 63


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """64"""

    code = 64


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    """65"""

    code = 65


class DelegationTokenExpiredError(BrokerResponseError):
    """66"""

    code = 66


class InvalidPrincipalTypeError(BrokerResponseError):
    """67"""

    code = 67


class NonEmptyGroupError(BrokerResponseError):
    """68"""

    code = 68


class GroupIdNotFoundError(BrokerResponseError):
    """69"""

    code = 69


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """70"""

    code = 70


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """71"""

    code = 71


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """72"""

    code = 72


class TopicDeletionDisabledError(BrokerResponseError):
    """73"""

    code = 73


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """74"""

    code = 74


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """75"""

    code = 75


class UnsupportedCompressionTypeError(BrokerResponseError):
    """76"""

    code = 76


class StaleBrokerEpochError(BrokerResponseError):
    """77"""

    code = 77


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """78"""

    code = 78


class MemberIdRequiredError(BrokerResponseError):
    """79"""

    code = 79


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """80"""

    code = 80


class GroupMaxSizeReachedError(BrokerResponseError):
    """81"""

    code = 81


class FencedInstanceIdError(BrokerResponseError):
    """82"""

    code = 82


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """83"""

    code = 83


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """84"""

    code = 84


class NoReassignmentInProgressError(BrokerResponseError):
    """85"""

    code = 85


class GroupSubscribedToTopicError(BrokerResponseError):
    """86"""

    code = 86


class InvalidRecordError(BrokerResponseError):
    """87"""

    code = 87


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """88"""

    code = 88


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """89"""

    code = 89


class ProducerFencedError(BrokerResponseError):
    """90"""

    code = 90


class ResourceNotFoundError(BrokerResponseError):
    """91"""

    code = 91


class DuplicateResourceError(BrokerResponseError):
    """92"""

    code = 92


class UnacceptableCredentialError(BrokerResponseError):
    """93"""

    code = 93


class InconsistentVoterSetError(BrokerResponseError):
    """94"""

    code = 94


class InvalidUpdateVersionError(BrokerResponseError):
    """95"""

    code = 95


class FeatureUpdateFailedError(BrokerResponseError):
    """96"""

    code = 96


class PrincipalDeserializationFailureError(BrokerResponseError):
    """97"""

    code = 97


class SnapshotNotFoundError(BrokerResponseError):
    """98"""

    code = 98


class PositionOutOfRangeError(BrokerResponseError):
    """99"""

    code = 99


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """100"""

    code = 100


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """101"""

    code = 101


class BrokerIdNotRegisteredError(BrokerResponseError):
    """102"""

    code = 102


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    """103"""

    code = 103


class InconsistentClusterIdError(BrokerResponseError):
    """104"""

    code = 104


class TransactionalIdNotFoundError(BrokerResponseError):
    """105"""

    code = 105


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """106"""

    code = 106


class IneligibleReplicaError(BrokerResponseError):
    """107"""

    code = 107


class NewLeaderElectedError(BrokerResponseError):
    """108"""

    code = 108


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """109"""

    code = 109


class FencedMemberEpochError(BrokerResponseError):
    """110"""

    code = 110


class UnreleasedInstanceIdError(BrokerResponseError):
    """111"""

    code = 111


class UnsupportedAssignorError(BrokerResponseError):
    """112"""

    code = 112


class StaleMemberEpochError(BrokerResponseError):
    """113"""

    code = 113


class MismatchedEndpointTypeError(BrokerResponseError):
    """114"""

    code = 114


class UnsupportedEndpointTypeError(BrokerResponseError):
    """115"""

    code = 115


class UnknownControllerIdError(BrokerResponseError):
    """116"""

    code = 116


class UnknownSubscriptionIdError(BrokerResponseError):
    """117"""

    code = 117


class TelemetryTooLargeError(BrokerResponseError):
    """118"""

    code = 118


class InvalidRegistrationError(BrokerResponseError):
    """119"""

    code = 119


class TransactionAbortableError(BrokerResponseError):
    """120"""

    code = 120


class InvalidRecordStateError(BrokerResponseError):
    """121"""

    code = 121


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """122"""

    code = 122


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """123"""

    code = 123


class FencedStateEpochError(BrokerResponseError):
    """124"""

    code = 124


class InvalidVoterKeyError(BrokerResponseError):
    """125"""

    code = 125


class DuplicateVoterError(BrokerResponseError):
    """126"""

    code = 126


class VoterNotFoundError(BrokerResponseError):
    """127"""

    code = 127


class ProtocolError(KafkaError):
    """Bytes that are not what the protocol says: truncated, oversized or malformed.

    Args:
        message: what is wrong.
        path: the field, dotted from the message's name, as in ``FetchResponse.responses.partitions``.
        offset: position in the frame, in bytes, where decoding stopped; -1 when there is none.
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


class ConfigurationError(KafkaError):
    """A configuration key or value that cannot be used; the message names the nearest right one."""


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be made, or ended before the answer came."""


class KafkaTimeoutError(RetriableError):
    """The time given for an operation was over before it was done."""


class BufferTimeoutError(KafkaTimeoutError):
    """No buffer space within ``max_block_ms``."""


class BufferFullError(RetriableError):
    """``send_nowait`` found no buffer space."""


class MetadataNotReadyError(RetriableError):
    """``send_nowait`` was called for a topic whose partitions are not known yet."""


class NodeNotReadyError(RetriableError):
    """No connection to that broker is ready for a request."""


class NoOffsetForPartitionError(KafkaError):
    """No committed offset, and ``auto_offset_reset`` is ``none``."""


class LogTruncationError(KafkaError):
    """The log was truncated below the consumer's position."""


class CommitFailedError(KafkaError):
    """The commit came from a member that no longer owns the partitions."""


class IllegalStateError(KafkaError):
    """The object is not in a state in which this call makes sense."""


class ClosedError(IllegalStateError):
    """The client was left (its ``async with`` block ended)."""


class UnsupportedCodecError(KafkaError):
    """The compression codec needs a package that is not installed."""


ERRORS: Final[dict[int, type[BrokerResponseError]]] = {
    cls.code: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, BrokerResponseError) and "code" in cls.__dict__ and cls.code != -1
}
ERRORS[-1] = UnknownError


def for_code(code: int) -> type[BrokerResponseError]:
    """The exception class for a protocol error code; ``UnknownError`` for codes that are not known."""
    return ERRORS.get(code, UnknownError)
