"""A request that waits until each of its partitions meets its condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from triokafka import errors
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition


class PartitionOutcome(Protocol):
    """One partition's part of the response."""

    error_code: int


P = TypeVar("P", bound=PartitionOutcome)


class PartitionsOperation(DelayedOperation, Generic[P]):
    """Waits until ``settled`` gives an error code, 0 for success, for every partition that has no error yet.

    A partition that this broker no longer leads is settled by that error. At the time-out, the others report
    REQUEST_TIMED_OUT.

    Args:
        timeout_ms: how long it may take.
        outcomes: the results by partition, from which the waiting handler builds the response.
        partitions: returns a hosted partition; raises `BrokerResponseError` for one that is not here.
        settled: returns the error code of a partition, None while it has to wait.
    """

    __slots__ = ("_outcomes", "_partitions", "_pending", "_settled")

    def __init__(
        self,
        timeout_ms: int,
        outcomes: Mapping[TopicPartition, P],
        partitions: Callable[[TopicPartition], Partition],
        settled: Callable[[Partition, P], int | None],
    ) -> None:
        super().__init__(timeout_ms)
        self._outcomes = outcomes
        self._partitions = partitions
        self._settled = settled
        self._pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        for key in self._pending:
            outcomes[key].error_code = errors.RequestTimedOutError.code

    def try_complete(self) -> bool:
        self._pending = [key for key in self._pending if not self._settle(key)]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        """Do nothing: the waiting handler builds the response from the outcomes."""

    def _settle(self, key: TopicPartition) -> bool:
        outcome = self._outcomes[key]
        try:
            partition = self._partitions(key)
            partition.require_leader()
        except errors.BrokerResponseError as error:
            outcome.error_code = error.code
            return True
        code = self._settled(partition, outcome)
        if code is None:
            return False
        outcome.error_code = code
        return True
