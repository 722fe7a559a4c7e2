"""Errors of kafka-python and aiokafka that the SDK never raises, for programs that name them in ``except`` clauses."""

from __future__ import annotations

from typing import Final

from triokafka.errors import (
    ERRORS,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    ProtocolError,
    RetriableError,
    UnknownError,
)

__all__ = [
    "Cancelled",
    "CorrelationIdError",
    "IllegalArgumentError",
    "MetadataEmptyBrokerList",
    "NoError",
    "QuotaViolationError",
    "StaleMetadata",
    "TooManyInFlightRequests",
    "UnrecognizedBrokerVersion",
    "for_code",
    "kafka_errors",
]


class Cancelled(RetriableError):
    """The request was cancelled."""


class IllegalArgumentError(KafkaError):
    """An argument is invalid."""


class CorrelationIdError(RetriableError, ProtocolError):
    """A response has the correlation id of another request."""


class MetadataEmptyBrokerList(RetriableError):
    """The metadata lists no broker."""


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
    message = "NO_ERROR"


kafka_errors: Final[dict[int, type[BrokerResponseError]]] = {0: NoError, **ERRORS}
"""The class for each protocol error code."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class for a protocol error code; `NoError` for 0, `UnknownError` for unknown codes."""
    return kafka_errors.get(error_code, UnknownError)
