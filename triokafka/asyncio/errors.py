"""The errors of ``aiokafka.errors``: those of `triokafka.errors` under aiokafka's names, and those only aiokafka has.

An alias is the class itself, so that ``except`` catches what the SDK raises.
"""

from __future__ import annotations

from triokafka.errors import *  # noqa: F403
from triokafka.errors import (
    ClosedError,
    ConcurrentTransactionsError,
    ConfigurationError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    DelegationTokenAuthDisabledError,
    DelegationTokenAuthorizationFailedError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    DuplicateSequenceNumberError,
    FetchSessionIdNotFoundError,
    GroupIdNotFoundError,
    InvalidFetchSessionEpochError,
    InvalidPrincipalTypeError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaError,
    ListenerNotFoundError,
    LogDirNotFoundError,
    MemberIdRequiredError,
    NetworkExceptionError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OperationNotAttemptedError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    ProtocolError,
    ReassignmentInProgressError,
    SaslAuthenticationFailedError,
    SecurityDisabledError,
    TransactionalIdAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)
from triokafka.peer_errors import *  # type: ignore[assignment]  # noqa: F403

ConcurrentTransactions = ConcurrentTransactionsError
CorruptRecordException = CorruptRecordError
DelegationTokenAuthDisabled = DelegationTokenAuthDisabledError
DelegationTokenAuthorizationFailed = DelegationTokenAuthorizationFailedError
DelegationTokenExpired = DelegationTokenExpiredError
DelegationTokenNotFound = DelegationTokenNotFoundError
DelegationTokenOwnerMismatch = DelegationTokenOwnerMismatchError
DelegationTokenRequestNotAllowed = DelegationTokenRequestNotAllowedError
DuplicateSequenceNumber = DuplicateSequenceNumberError
FetchSessionIdNotFound = FetchSessionIdNotFoundError
GroupCoordinatorNotAvailableError = CoordinatorNotAvailableError
GroupIdNotFound = GroupIdNotFoundError
GroupLoadInProgressError = CoordinatorLoadInProgressError
IncompatibleBrokerVersion = UnsupportedVersionError
InvalidFetchSessionEpoch = InvalidFetchSessionEpochError
InvalidMessageError = CorruptRecordError
InvalidPrincipalType = InvalidPrincipalTypeError
InvalidProducerEpoch = InvalidProducerEpochError
InvalidProducerIdMapping = InvalidProducerIdMappingError
InvalidTransactionTimeout = InvalidTransactionTimeoutError
InvalidTxnState = InvalidTxnStateError
KafkaConfigurationError = ConfigurationError
KafkaProtocolError = ProtocolError
KafkaUnavailableError = KafkaConnectionError
ListenerNotFound = ListenerNotFoundError
LogDirNotFound = LogDirNotFoundError
MemberIdRequired = MemberIdRequiredError
NoBrokersAvailable = KafkaConnectionError
NonEmptyGroup = NonEmptyGroupError
NotCoordinatorForGroupError = NotCoordinatorError
OperationNotAttempted = OperationNotAttemptedError
OutOfOrderSequenceNumber = OutOfOrderSequenceNumberError
ProducerFenced = ProducerFencedError
ReassignmentInProgress = ReassignmentInProgressError
SaslAuthenticationFailed = SaslAuthenticationFailedError
SecurityDisabled = SecurityDisabledError
StaleLeaderEpochCodeError = NetworkExceptionError
TransactionCoordinatorFenced = TransactionCoordinatorFencedError
TransactionalIdAuthorizationFailed = TransactionalIdAuthorizationFailedError
UnknownProducerId = UnknownProducerIdError


class ConsumerStoppedError(Exception):
    """The consumer was stopped, before the call or during it."""


class IllegalOperation(Exception):
    """The operation needs a configuration that the client does not have, such as a group or a transactional id."""


class ProducerClosed(ClosedError):
    """The producer was stopped."""


class RecordTooLargeError(KafkaError):
    """A record is larger than a fetch response may be. Never raised: the client fetches larger records, too."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


class AuthenticationMethodNotSupported(KafkaError):
    """The broker does not support the SASL mechanism."""
