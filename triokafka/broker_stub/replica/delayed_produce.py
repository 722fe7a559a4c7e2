"""A Produce request that waits for replicas, or for a flush of the leader's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triokafka import errors
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition


class DelayedProduce(DelayedOperation):
    """Waits with acks=all until the high watermark of every partition has passed its records.

    With acks=1 it waits until the leader has flushed the records (``flush.messages``).

    The outcome of each appended partition starts with REQUEST_TIMED_OUT, which success overwrites. At the time-out,
    partitions whose records are committed report success, and the others REQUEST_TIMED_OUT.
    """

    __slots__ = ("_outcomes", "_partitions", "_pending", "_required_acks")

    def __init__(
        self,
        timeout_ms: int,
        outcomes: Mapping[TopicPartition, AppendOutcome],
        partitions: Callable[[TopicPartition], Partition],
        *,
        required_acks: int = -1,
    ) -> None:
        super().__init__(timeout_ms)
        self._required_acks = required_acks
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
        if self._required_acks == 1:
            if partition.log.settled_offset < outcome.required_offset:
                return False
            outcome.error_code = 0
            return True
        if partition.high_watermark < outcome.required_offset:
            return False
        # The records are committed, but on fewer replicas than the topic requires.
        outcome.error_code = 0 if partition.enough_replicas else errors.NotEnoughReplicasAfterAppendError.code
        return True
