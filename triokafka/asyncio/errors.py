"""The errors of ``aiokafka.errors``: those of `triokafka.errors` under aiokafka's names, and those only aiokafka has.

An alias is the class itself, so that ``except`` catches what the SDK raises.
"""

from __future__ import annotations

from triokafka import errors as _errors
from triokafka.errors import *  # noqa: F403
from triokafka.peer_errors import *  # type: ignore[assignment]  # noqa: F403

ConcurrentTransactions = _errors.ConcurrentTransactionsError
CorruptRecordException = _errors.CorruptRecordError
DelegationTokenAuthDisabled = _errors.DelegationTokenAuthDisabledError
DelegationTokenAuthorizationFailed = _errors.DelegationTokenAuthorizationFailedError
DelegationTokenExpired = _errors.DelegationTokenExpiredError
DelegationTokenNotFound = _errors.DelegationTokenNotFoundError
DelegationTokenOwnerMismatch = _errors.DelegationTokenOwnerMismatchError
DelegationTokenRequestNotAllowed = _errors.DelegationTokenRequestNotAllowedError
DuplicateSequenceNumber = _errors.DuplicateSequenceNumberError
FetchSessionIdNotFound = _errors.FetchSessionIdNotFoundError
GroupCoordinatorNotAvailableError = _errors.CoordinatorNotAvailableError
GroupIdNotFound = _errors.GroupIdNotFoundError
GroupLoadInProgressError = _errors.CoordinatorLoadInProgressError
IncompatibleBrokerVersion = _errors.UnsupportedVersionError
InvalidFetchSessionEpoch = _errors.InvalidFetchSessionEpochError
InvalidMessageError = _errors.CorruptRecordError
InvalidPrincipalType = _errors.InvalidPrincipalTypeError
InvalidProducerEpoch = _errors.InvalidProducerEpochError
InvalidProducerIdMapping = _errors.InvalidProducerIdMappingError
InvalidTransactionTimeout = _errors.InvalidTransactionTimeoutError
InvalidTxnState = _errors.InvalidTxnStateError
KafkaConfigurationError = _errors.ConfigurationError
KafkaProtocolError = _errors.ProtocolError
KafkaUnavailableError = _errors.KafkaConnectionError
ListenerNotFound = _errors.ListenerNotFoundError
LogDirNotFound = _errors.LogDirNotFoundError
MemberIdRequired = _errors.MemberIdRequiredError
NoBrokersAvailable = _errors.KafkaConnectionError
NonEmptyGroup = _errors.NonEmptyGroupError
NotCoordinatorForGroupError = _errors.NotCoordinatorError
OperationNotAttempted = _errors.OperationNotAttemptedError
OutOfOrderSequenceNumber = _errors.OutOfOrderSequenceNumberError
ProducerFenced = _errors.ProducerFencedError
ReassignmentInProgress = _errors.ReassignmentInProgressError
SaslAuthenticationFailed = _errors.SaslAuthenticationFailedError
SecurityDisabled = _errors.SecurityDisabledError
StaleLeaderEpochCodeError = _errors.NetworkExceptionError
TransactionCoordinatorFenced = _errors.TransactionCoordinatorFencedError
TransactionalIdAuthorizationFailed = _errors.TransactionalIdAuthorizationFailedError
UnknownProducerId = _errors.UnknownProducerIdError


class ConsumerStoppedError(Exception):
    """The consumer was stopped, before the call or during it."""


class IllegalOperation(Exception):
    """The operation needs a configuration that the client does not have, such as a group or a transactional id."""


class ProducerClosed(_errors.ClosedError):
    """The producer was stopped."""


class RecordTooLargeError(_errors.KafkaError):
    """A record is larger than a fetch response may be. Never raised: the client fetches larger records, too."""


class AuthenticationFailedError(_errors.KafkaError):
    """The broker refused the credentials."""


class AuthenticationMethodNotSupported(_errors.KafkaError):
    """The broker does not support the SASL mechanism."""
