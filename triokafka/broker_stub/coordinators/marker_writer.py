"""Writing transaction markers to the partitions that this broker leads.

The markers of a request are appended at once, those of one partition in one append, or in several for very many.
Markers of ``__consumer_offsets`` go through the group coordinator, which makes the offsets of the transaction valid or
drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.coordinators.coordinator_entry import CoordinatorEntry
from triokafka.broker_stub.coordinators.marker_batch import marker_batch
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.work_budget import BUDGET, WorkBudget, in_portions
from triokafka.coordinator.runtime.coordinator_log import TransactionMarker
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to
from triokafka.structs import TopicPartition
from triokafka.topic_names import GROUP_METADATA_TOPIC
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator

_NOT_READY: Final = frozenset(
    {
        errors.CoordinatorNotAvailableError.code,
        errors.CoordinatorLoadInProgressError.code,
        errors.NotCoordinatorError.code,
    }
)
"""Codes of the group coordinator that a transaction coordinator does not expect; it repeats after NOT_LEADER."""


class PartitionMarkers:
    """Writes markers.

    Args:
        timeout_ms: returns the time limit for the in-sync replicas to store them.
    """

    def __init__(
        self,
        world: World,
        replicas: ReplicaManager,
        groups: CoordinatorEntry[GroupCoordinator],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._world = world
        self._replicas = replicas
        self._groups = groups
        self._timeout_ms = timeout_ms

    async def write(
        self, markers: Sequence[tuple[TransactionMarker, Sequence[TopicPartition]]]
    ) -> list[dict[TopicPartition, int]]:
        """Write each marker to its partitions, and return the error codes once the in-sync replicas have them.

        Partitions that this broker does not lead get an error; the others get their marker. If cancelled, markers may
        have been written.
        """
        codes: list[dict[TopicPartition, int]] = [{} for _ in markers]
        by_partition: dict[TopicPartition, list[int]] = {}
        replies: list[tuple[int, TopicPartition, Reply[None]]] = []
        async for number, (marker, partitions) in in_portions(enumerate(markers)):
            for partition in dict.fromkeys(partitions):
                if partition.topic == GROUP_METADATA_TOPIC:
                    replies.append((number, partition, self._end_in_group(partition.partition, marker)))
                else:
                    by_partition.setdefault(partition, []).append(number)
        outcomes: dict[TopicPartition, AppendOutcome] = {}
        budget = WorkBudget()
        for partition, numbers in by_partition.items():
            outcomes[partition] = AppendOutcome()
            left = iter(numbers)
            while some := list(islice(left, BUDGET)):
                await budget.spend(len(some))
                for number, code in self._append(partition, some, markers, outcomes[partition]).items():
                    codes[number][partition] = code
        waiting = {key: outcome for key, outcome in outcomes.items() if outcome.last_offset >= 0}
        operation = self._replicas.delay_produce(waiting, self._timeout_ms())
        if operation is not None:
            await operation.wait()
        for partition, outcome in waiting.items():
            for number in by_partition[partition]:
                codes[number][partition] = codes[number][partition] or outcome.error_code
        for number, partition, reply in replies:
            codes[number][partition] = await _code_of(reply)
        return codes

    def _append(
        self,
        partition: TopicPartition,
        numbers: Sequence[int],
        markers: Sequence[tuple[TransactionMarker, Sequence[TopicPartition]]],
        outcome: AppendOutcome,
    ) -> Mapping[int, int]:
        """Append markers to one partition; return the error code of each, and set the last offset in ``outcome``."""
        if len(numbers) > 1 and len({markers[number][0].version for number in numbers}) == 1:
            # One refused marker refuses the batch, so that each is then tried alone.
            code = self._append_together(partition, [markers[number][0] for number in numbers], outcome)
            if not code:
                return dict.fromkeys(numbers, 0)
        return {number: self._append_together(partition, [markers[number][0]], outcome) for number in numbers}

    def _append_together(
        self, partition: TopicPartition, markers: Sequence[TransactionMarker], outcome: AppendOutcome
    ) -> int:
        now_ms = self._world.wall_ms()
        data = bytearray().join(marker_batch(marker, now_ms) for marker in markers)
        try:
            end = self._replicas.append_internal(partition, data, transaction_version=markers[0].version)
        except errors.BrokerResponseError as error:
            return error.code
        except OSError:
            return errors.KafkaStorageError.code
        outcome.last_offset = end - 1
        return 0

    def _end_in_group(self, partition: int, marker: TransactionMarker) -> Reply[None]:
        reply: Reply[None] = Reply()
        try:
            self._groups.coordinator.transactions.end(partition, marker, reply)
        except errors.KafkaError as error:
            reply.fail(error)
        return reply


async def _code_of(reply: Reply[None]) -> int:
    try:
        await answer_to(reply)
    except errors.BrokerResponseError as error:
        return errors.NotLeaderForPartitionError.code if error.code in _NOT_READY else error.code
    return 0
