"""Decided transactions and the markers that they still need, by the broker that leads each partition: a pure queue.

One request per broker is in flight at a time; it takes all that has gathered for the broker meanwhile, so markers are
batched under load and sent at once without load. A partition whose marker could not be written is tried again, by its
leader of that time, after a delay that doubles. A partition that no longer exists needs no marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from triokafka.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError
from triokafka.structs import TopicPartition

NO_LEADER: Final = -1
_AT_ONCE: Final = 2_000
"""Markers per request: about 100 KB."""
_FIRST_DELAY: Final = 0.02  # seconds
_LAST_DELAY: Final = 1.0


class CompletionKey(NamedTuple):
    """The identity of a decided transaction."""

    partition: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Completion(NamedTuple):
    """A decided transaction whose partitions need their markers.

    ``coordinator_epoch`` is the leader epoch of the coordinator's ``partition``. ``version`` is the transaction version
    under which it ends.
    """

    partition: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    version: int
    partitions: tuple[TopicPartition, ...]

    @property
    def key(self) -> CompletionKey:
        """The completion's key. A completion itself is costly to hash: it may have thousands of partitions."""
        return CompletionKey(
            self.partition, self.coordinator_epoch, self.transactional_id, self.producer_id, self.producer_epoch
        )


class Completions(Protocol):
    """Takes over decided transactions, and reports when all markers of one are written."""

    def add(self, completion: Completion) -> None:
        """Begin to write the markers. The decision is committed."""

    def forget(self, partition: int) -> None:
        """Drop all transactions of a coordinator's partition: another broker continues them."""


class MarkerRequest(NamedTuple):
    """Markers for the partitions of one leader."""

    node_id: int
    markers: tuple[tuple[Completion, tuple[TopicPartition, ...]], ...]


@dataclass(slots=True, eq=False)
class _Pending:
    """A completion with the partitions that have no marker yet, and how often each was tried."""

    completion: Completion
    left: dict[TopicPartition, int]

    def lacks_marker(self, partition: TopicPartition) -> bool:
        """Whether the partition has no marker yet."""
        return partition in self.left


_Marker: TypeAlias = tuple[_Pending, TopicPartition]


class MarkerQueue:
    """The decided transactions of one coordinator.

    Args:
        leader_of: returns the broker that leads a partition, `NO_LEADER`, or None when the partition does not exist.
    """

    def __init__(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._leader_of = leader_of
        self._pending: dict[CompletionKey, _Pending] = {}
        self._unrouted: dict[_Marker, None] = {}
        self._by_node: dict[int, dict[_Marker, None]] = {}
        self._in_flight: dict[int, None] = {}
        self._retries: list[tuple[float, int, _Marker]] = []
        self._leaderless: dict[_Marker, None] = {}
        self._sequence = 0
        self._done: list[Completion] = []

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def without_leader(self) -> int:
        """The number of markers whose partition has no leader."""
        return sum(pending.lacks_marker(partition) for pending, partition in self._leaderless)

    def add(self, completion: Completion) -> None:
        """Take over a decided transaction. A known one is not added twice."""
        if completion.key in self._pending:
            return
        pending = self._pending[completion.key] = _Pending(completion, dict.fromkeys(completion.partitions, 0))
        for partition in completion.partitions:
            self._unrouted[pending, partition] = None
        if not completion.partitions:
            self._finish(pending)

    def forget(self, partition: int) -> None:
        """Drop the transactions of one partition of ``__transaction_state``."""
        for pending in [known for known in self._pending.values() if known.completion.partition == partition]:
            self._drop(pending)
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
            _, _, marker = heapq.heappop(self._retries)
            self._leaderless.pop(marker, None)
            self._unrouted[marker] = None
        unrouted, self._unrouted = self._unrouted, {}
        for marker in unrouted:
            pending, partition = marker
            if not pending.lacks_marker(partition):
                continue
            leader = self._leader_of(partition)
            if leader is None:
                self._written(marker)
            elif leader == NO_LEADER:
                self._leaderless[marker] = None
                self._retry(marker, now)
            else:
                self._by_node.setdefault(leader, {})[marker] = None
        return [
            request
            for node_id in list(self._by_node)
            if node_id not in self._in_flight and (request := self._request(node_id)) is not None
        ]

    def _request(self, node_id: int) -> MarkerRequest | None:
        queue = self._by_node[node_id]
        grouped: dict[_Pending, list[TopicPartition]] = {}
        for marker in list(islice(queue, _AT_ONCE)):
            del queue[marker]
            pending, partition = marker
            if pending.lacks_marker(partition):
                grouped.setdefault(pending, []).append(partition)
        if not queue:
            del self._by_node[node_id]
        if not grouped:
            return None
        self._in_flight[node_id] = None
        return MarkerRequest(node_id, tuple((pending.completion, tuple(found)) for pending, found in grouped.items()))

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
            pending = self._pending.get(completion.key)
            if pending is None:
                continue
            for partition in partitions:
                code = found.get(partition, -1)
                marker = pending, partition
                if not pending.lacks_marker(partition):
                    continue
                if code == 0:
                    self._written(marker)
                elif code == InvalidProducerEpochError.code:
                    # A newer incarnation of the producer writes there, so this transaction has ended in the partition.
                    notes.append(f"{_named(completion)}: {partition} has a newer epoch and needs no marker")
                    self._written(marker)
                elif code == TransactionCoordinatorFencedError.code:
                    notes.append(
                        f"{_named(completion)}: {partition} knows a newer coordinator, which writes the markers"
                    )
                    self._drop(pending)
                else:
                    self._retry(marker, now)
        return notes

    def _written(self, marker: _Marker) -> None:
        pending, partition = marker
        del pending.left[partition]
        if not pending.left:
            self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        self._drop(pending)
        self._done.append(pending.completion)

    def _drop(self, pending: _Pending) -> None:
        pending.left.clear()
        self._pending.pop(pending.completion.key, None)

    def _retry(self, marker: _Marker, now: float) -> None:
        pending, partition = marker
        tried = pending.left[partition]
        pending.left[partition] = tried + 1
        delay = min(_FIRST_DELAY * 2 ** min(tried, 10), _LAST_DELAY)
        self._sequence += 1
        heapq.heappush(self._retries, (now + delay, self._sequence, marker))


def _named(completion: Completion) -> str:
    return (
        f"transactional id {completion.transactional_id!r}"
        f" (producer {completion.producer_id}, epoch {completion.producer_epoch})"
    )
