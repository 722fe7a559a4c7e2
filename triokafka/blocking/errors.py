"""The errors of ``kafka.errors``: those of `triokafka.errors`, and names that only kafka-python has."""

from __future__ import annotations

from triokafka import errors as _errors
from triokafka.errors import *  # noqa: F403
from triokafka.errors import (
    BrokerResponseError,
    ConfigurationError,
    CorruptRecordError,
    InvalidMetadataError,
    KafkaError,
    ProtocolError,
    RetriableError,
    UnsupportedVersionError,
)

KafkaConfigurationError = ConfigurationError
KafkaProtocolError = ProtocolError
CorruptRecordException = CorruptRecordError
IncompatibleBrokerVersion = UnsupportedVersionError  # the SDK makes no difference between who found it out


class Cancelled(RetriableError):
    """The request was withdrawn."""


class IllegalArgumentError(KafkaError):
    """An argument cannot be used."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """An answer was to another request."""


class InvalidReceiveError(KafkaProtocolError):
    """What came is no answer."""


class MetadataEmptyBrokerList(RetriableError):
    """The metadata names no broker."""


class UnknownBrokerIdError(KafkaError):
    """There is no broker of that number."""


class QuotaViolationError(KafkaError):
    """A quota would be exceeded."""


class StaleMetadata(InvalidMetadataError):
    """The metadata is out of date."""


class TooManyInFlightRequests(RetriableError):
    """The connection takes no more requests now."""


class UnrecognizedBrokerVersion(KafkaError):
    """It could not be found out what the broker is."""


class TransactionAbortedError(KafkaError):
    """The transaction was aborted."""


class NoError(BrokerResponseError):
    """No error: what the class for code 0 is called."""

    code = 0


kafka_errors: dict[int, type[BrokerResponseError]] = {0: NoError, **_errors.ERRORS}


def for_code(  # type: ignore[no-redef]
    error_code: int,
) -> type[BrokerResponseError]:
    """The class for a protocol error code; `NoError` for 0, `UnknownError` for codes that are not known."""
    return kafka_errors.get(error_code, _errors.UnknownError)
