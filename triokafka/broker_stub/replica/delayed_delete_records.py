"""A DeleteRecords request that waits until every replica has deleted the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from triokafka import errors
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition


@dataclass(slots=True)
class DeleteOutcome:
    """One partition's part of a DeleteRecords request: the offset to reach, and the result."""

    target: int = -1
    low_watermark: int = -1
    error_code: int = 0


class DelayedDeleteRecords(DelayedOperation):
    """Waits until the low watermark of every partition has reached the offset before which records were deleted.

    At the time-out, the other partitions report REQUEST_TIMED_OUT. Their records are deleted later.
    """

    __slots__ = ("_outcomes", "_partitions", "_pending")

    def __init__(
        self,
        timeout_ms: int,
        outcomes: Mapping[TopicPartition, DeleteOutcome],
        partitions: Callable[[TopicPartition], Partition],
    ) -> None:
        super().__init__(timeout_ms)
        self._outcomes = outcomes
        self._partitions = partitions
        self._pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        for key in self._pending:
            outcomes[key].error_code = errors.RequestTimedOutError.code

    def try_complete(self) -> bool:
        self._pending = [key for key in self._pending if not self._settled(key)]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        """Do nothing: the waiting handler builds the response from the outcomes."""

    def _settled(self, key: TopicPartition) -> bool:
        outcome = self._outcomes[key]
        try:
            partition = self._partitions(key)
            partition.require_leader()
        except errors.BrokerResponseError as error:
            outcome.error_code = error.code
            return True
        outcome.low_watermark = partition.low_watermark()
        if outcome.low_watermark < outcome.target:
            return False
        outcome.error_code = 0
        return True
