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
# the SDK has one error for an incompatible broker and an unsupported version
IncompatibleBrokerVersion = UnsupportedVersionError


class Cancelled(RetriableError):
    """The request was cancelled."""


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """A response has the correlation id of another request."""


class InvalidReceiveError(KafkaProtocolError):
    """A response cannot be parsed."""


class MetadataEmptyBrokerList(RetriableError):
    """The metadata lists no broker."""


class UnknownBrokerIdError(KafkaError):
    """No broker has this node id."""


class QuotaViolationError(KafkaError):
    """The request would exceed a quota."""


class StaleMetadata(InvalidMetadataError):
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
