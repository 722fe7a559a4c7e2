"""Data loss as errors or warnings, with the error classes of Spark's own Kafka connector.

Option ``failOnDataLoss`` decides which. Gaps from compaction, aborted transactions and control records are not losses.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from triokafka.errors import KafkaError

_log: Final = logging.getLogger("triokafka.spark")

KINDS: Final = (
    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", "COULD_NOT_READ_OFFSET_RANGE",
    "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", "PARTITIONS_DELETED", "PARTITION_OFFSET_CHANGED", "START_OFFSET_RESET",
)  # fmt: skip
"""The connector's sub-classes of ``KAFKA_DATA_LOSS``."""


class KafkaDataLossError(KafkaError):
    """Records that a query must read no longer exist. ``error_class`` is the connector's error class."""

    advice = "Set the source option failOnDataLoss to false to continue without them."

    def __init__(self, message: str, error_class: str = "KAFKA_DATA_LOSS") -> None:
        super().__init__(message)
        self.error_class = error_class

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.args[0], self.error_class))


def report_loss(fails: bool, kind: str, sentence: str) -> None:
    """Raise for a data loss if it ``fails`` the query; otherwise log a warning.

    Args:
        fails: the value of option ``failOnDataLoss``.
        kind: one of `KINDS`.
        sentence: the finding.

    Raises:
        KafkaDataLossError: with the error class and the finding.
    """
    if fails:
        raise KafkaDataLossError(
            f"[KAFKA_DATA_LOSS.{kind}] Some data may have been lost because they are not available in Kafka any more;"
            " either the data was aged out by Kafka or the topic may have been deleted before all the data in the topic"
            " was processed. If you don't want your streaming query to fail on such cases, set the source option"
            f" failOnDataLoss to false. Reason: {sentence}",
            f"KAFKA_DATA_LOSS.{kind}",
        )
    _log.warning("[KAFKA_DATA_LOSS.%s] Some data may have been lost, and the query continues: %s", kind, sentence)
