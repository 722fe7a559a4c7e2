"""The errors of ``kafka.errors``: those of `triokafka.errors`, and names that only kafka-python has."""

from __future__ import annotations

from triokafka.errors import *  # noqa: F403
from triokafka.errors import (
    ConfigurationError,
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnsupportedVersionError,
)
from triokafka.peer_errors import *  # type: ignore[assignment]  # noqa: F403

KafkaConfigurationError = ConfigurationError
KafkaProtocolError = ProtocolError
CorruptRecordException = CorruptRecordError
# the SDK has one error for an incompatible broker and an unsupported version
IncompatibleBrokerVersion = UnsupportedVersionError
NoBrokersAvailable = KafkaTimeoutError  # kafka-python 2 has it, for what its constructors raise


class InvalidReceiveError(KafkaProtocolError):
    """A response cannot be parsed."""


class UnknownBrokerIdError(KafkaError):
    """No broker has this node id."""
