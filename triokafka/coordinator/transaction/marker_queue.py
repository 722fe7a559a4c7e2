"""The markers that have to be written, by the broker that leads each partition: a pure queue.

One request per broker is in flight at a time; it takes all that has gathered for the broker meanwhile, so markers are
batched under load and sent at once without load. A partition whose marker could not be written is tried again, by its
leader of that time, after a delay that doubles. A partition that no longer exists needs no marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from triokafka.coordinator.transaction.completions import Completion
from triokafka.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError
from triokafka.structs import TopicPartition

NO_LEADER: Final = -1
_AT_ONCE: Final = 2_000
"""Markers per request: about 100 KB."""
_FIRST_DELAY: Final = 0.02  # seconds
_LAST_DELAY: Final = 1.0


class MarkerRequest(NamedTuple):
    """Markers for the partitions of one leader."""

    node_id: int
    markers: tuple[tuple[Completion, tuple[TopicPartition, ...]], ...]


@dataclass(slots=True)
class _Pending:
    """A completion with the partitions that have no marker yet, and how often each was tried."""

    completion: Completion
    left: dict[TopicPartition, int] = field(default_factory=dict)


class MarkerQueue:
    """The decided transactions of one coordinator.

    Args:
        leader_of: returns the broker that leads a partition, `NO_LEADER`, or None when the partition does not exist.
    """

    def __init__(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._leader_of = leader_of
        self._pending: dict[Completion, _Pending] = {}
        self._unrouted: dict[tuple[Completion, TopicPartition], None] = {}
        self._by_node: dict[int, dict[tuple[Completion, TopicPartition], None]] = {}
        self._in_flight: dict[int, None] = {}
        self._retries: list[tuple[float, int, Completion, TopicPartition]] = []
        self._leaderless: dict[tuple[Completion, TopicPartition], None] = {}
        self._sequence = 0
        self._done: list[Completion] = []

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def without_leader(self) -> int:
        """The number of markers whose partition has no leader."""
        return sum(self._waits(completion, partition) for completion, partition in self._leaderless)

    def add(self, completion: Completion) -> None:
        """Take over a decided transaction. A known one is not added twice."""
        if completion in self._pending:
            return
        self._pending[completion] = _Pending(completion, dict.fromkeys(completion.partitions, 0))
        for partition in completion.partitions:
            self._unrouted[completion, partition] = None
        if not completion.partitions:
            self._finish(completion)

    def forget(self, partition: int) -> None:
        """Drop the transactions of one partition of ``__transaction_state``."""
        for completion in [known for known in self._pending if known.partition == partition]:
            self._drop(completion)
        self._done = [known for known in self._done if known.partition != partition]

    def take_done(self) -> list[Completion]:
        """Return the transactions whose markers are all written, once."""
        done, self._done = self._done, []
        return done

    def next_deadline(self) -> float | None:
        """Return when the next retry is due; None without one."""
        return self._retries[0][0] if self._retries else None

    def due(self, now: float) -> list[MarkerRequest]:
        """Return the requests to send now: at most one per broker, and none to a broker with one in flight."""
        while self._retries and self._retries[0][0] <= now:
            _, _, completion, partition = heapq.heappop(self._retries)
            if self._waits(completion, partition):
                self._unrouted[completion, partition] = None
            else:
                self._leaderless.pop((completion, partition), None)
        unrouted, self._unrouted = self._unrouted, {}
        for completion, partition in unrouted:
            if not self._waits(completion, partition):
                continue
            leader = self._leader_of(partition)
            self._leaderless.pop((completion, partition), None)
            if leader is None:
                self._written(completion, partition)
            elif leader == NO_LEADER:
                self._leaderless[completion, partition] = None
                self._retry(completion, partition, now)
            else:
                self._by_node.setdefault(leader, {})[completion, partition] = None
        return [
            request
            for node_id in list(self._by_node)
            if node_id not in self._in_flight and (request := self._request(node_id)) is not None
        ]

    def _request(self, node_id: int) -> MarkerRequest | None:
        queue = self._by_node[node_id]
        grouped: dict[Completion, list[TopicPartition]] = {}
        for item in list(queue)[:_AT_ONCE]:
            del queue[item]
            completion, partition = item
            if self._waits(completion, partition):
                grouped.setdefault(completion, []).append(partition)
        if not queue:
            del self._by_node[node_id]
        if not grouped:
            return None
        self._in_flight[node_id] = None
        return MarkerRequest(node_id, tuple((completion, tuple(found)) for completion, found in grouped.items()))

    def answered(
        self, request: MarkerRequest, codes: Sequence[Mapping[TopicPartition, int]] | None, now: float
    ) -> list[str]:
        """Process the error codes of a request by marker and partition; None: there was no answer.

        Returns messages for the log about partitions that refused their marker.
        """
        self._in_flight.pop(request.node_id, None)
        notes = []
        for number, (completion, partitions) in enumerate(request.markers):
            found = codes[number] if codes is not None and number < len(codes) else {}
            for partition in partitions:
                code = found.get(partition, -1)
                if not self._waits(completion, partition):
                    continue
                if code == 0:
                    self._written(completion, partition)
                elif code == InvalidProducerEpochError.code:
                    # A newer incarnation of the producer writes there, so this transaction has ended in the partition.
                    notes.append(f"{_named(completion)}: {partition} has a newer epoch and needs no marker")
                    self._written(completion, partition)
                elif code == TransactionCoordinatorFencedError.code:
                    notes.append(
                        f"{_named(completion)}: {partition} knows a newer coordinator, which writes the markers"
                    )
                    self._drop(completion)
                else:
                    self._retry(completion, partition, now)
        return notes

    def _waits(self, completion: Completion, partition: TopicPartition) -> bool:
        pending = self._pending.get(completion)
        return pending is not None and partition in pending.left

    def _written(self, completion: Completion, partition: TopicPartition) -> None:
        left = self._pending[completion].left
        del left[partition]
        if not left:
            self._finish(completion)

    def _finish(self, completion: Completion) -> None:
        self._drop(completion)
        self._done.append(completion)

    def _drop(self, completion: Completion) -> None:
        self._pending.pop(completion, None)

    def _retry(self, completion: Completion, partition: TopicPartition, now: float) -> None:
        left = self._pending[completion].left
        delay = min(_FIRST_DELAY * 2 ** min(left[partition], 10), _LAST_DELAY)
        left[partition] += 1
        self._sequence += 1
        heapq.heappush(self._retries, (now + delay, self._sequence, completion, partition))


def _named(completion: Completion) -> str:
    return (
        f"transactional id {completion.transactional_id!r}"
        f" (producer {completion.producer_id}, epoch {completion.producer_epoch})"
    )
