"""The errors of ``aiokafka.errors``: those of `triokafka.errors` under aiokafka's names, and those only aiokafka has.

An alias is the class itself, so that ``except`` catches what the SDK raises.
"""

from __future__ import annotations

from triokafka import errors as _errors
from triokafka.errors import *  # noqa: F403
from triokafka.errors import (
    BrokerResponseError,
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
    RetriableError,
    SaslAuthenticationFailedError,
    SecurityDisabledError,
    TransactionalIdAuthorizationFailedError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)

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


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class AuthenticationFailedError(KafkaError):
    """The broker refused the credentials."""


class AuthenticationMethodNotSupported(KafkaError):
    """The broker does not support the SASL mechanism."""


class Cancelled(RetriableError):
    """The request was cancelled."""


class CorrelationIdError(RetriableError, ProtocolError):
    """A response has the correlation id of another request."""


class MetadataEmptyBrokerList(RetriableError):
    """The metadata lists no broker."""


class QuotaViolationError(KafkaError):
    """The request would exceed a quota."""


class StaleMetadata(RetriableError):
    """The metadata is outdated."""


class TooManyInFlightRequests(RetriableError):
    """The connection has the maximum number of requests in flight."""


class UnrecognizedBrokerVersion(KafkaError):
    """The broker's version is not recognized."""


class NoError(BrokerResponseError):
    """The class for error code 0: no error."""

    code = 0


kafka_errors: dict[int, type[BrokerResponseError]] = {0: NoError, **_errors.ERRORS}


def for_code(  # type: ignore[no-redef]
    error_code: int,
) -> type[BrokerResponseError]:
    """Return the class for a protocol error code; `NoError` for 0, `UnknownError` for unknown codes."""
    return kafka_errors.get(error_code, _errors.UnknownError)
