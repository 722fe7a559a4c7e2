"""Errors of kafka-python and aiokafka that the SDK never raises, for programs that name them in ``except`` clauses."""

from __future__ import annotations

from typing import Final

from triokafka import errors

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


class Cancelled(errors.RetriableError):
    """The request was cancelled."""


class IllegalArgumentError(errors.KafkaError):
    """An argument is invalid."""


class CorrelationIdError(errors.RetriableError, errors.ProtocolError):
    """A response has the correlation id of another request."""


class MetadataEmptyBrokerList(errors.RetriableError):
    """The metadata lists no broker."""


class QuotaViolationError(errors.KafkaError):
    """The request would exceed a quota."""


class StaleMetadata(errors.InvalidMetadataError):
    """The metadata is outdated."""


class TooManyInFlightRequests(errors.RetriableError):
    """The connection has the maximum number of requests in flight."""


class UnrecognizedBrokerVersion(errors.KafkaError):
    """The broker's version is not recognized."""


class NoError(errors.BrokerResponseError):
    """The class for error code 0: no error."""

    code = 0
    message = "NO_ERROR"


kafka_errors: Final[dict[int, type[errors.BrokerResponseError]]] = {0: NoError, **errors.ERRORS}
"""The class for each protocol error code."""


def for_code(error_code: int) -> type[errors.BrokerResponseError]:
    """Return the class for a protocol error code; `NoError` for 0, `UnknownError` for unknown codes."""
    return kafka_errors.get(error_code, errors.UnknownError)
