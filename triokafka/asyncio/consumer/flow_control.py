"""Records on their way from the SDK's consumer to the program: how many, and from which offset. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from triokafka.asyncio.consumer.portions import Portions
from triokafka.structs import TopicPartition

_MOST_RECORDS: Final = 16_384
"""Records of a partition that may wait in the asyncio loop before the partition is paused. Small records that were
fetched together are passed on together: passing them costs as much processor time as a thousand records."""
_FIRST_RECORDS: Final = 512
"""As `_MOST_RECORDS`, at first: a consumer gets more at once when it has taken all that it had."""

Message = dict[TopicPartition, tuple[int, list[Any], Sequence[int]]]
"""Records by partition, with the epoch of their fetch and their cuts: the argument of `AsyncioState.deliver`."""


class FlowControl:
    """Counts the records that wait in the asyncio loop, and remembers where those that have not arrived there begin.

    A partition with ``most_records`` waiting records is full until the program has taken some. An epoch counts the
    seeks of a partition. The program's own pauses are here, too, so that neither kind ends the other.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_records = _FIRST_RECORDS
        self._portions = Portions(most_bytes)
        self._epochs: dict[TopicPartition, int] = {}
        self._outstanding: dict[TopicPartition, int] = {}
        self._full: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._delivered = 0
        self._in_transit: deque[tuple[int, dict[TopicPartition, int]]] = deque()

    def send(
        self,
        records: dict[TopicPartition, list[Any]],
        pieces: Iterable[tuple[TopicPartition, int, int]],
    ) -> tuple[Message, list[TopicPartition]]:
        """Return the message with these records, and the partitions that are full with it.

        ``pieces`` are those of `Portions.cuts`.
        """
        message: Message = {}
        full = []
        cuts = self._portions.cuts(pieces)
        for partition, some in records.items():
            message[partition] = (self._epochs.get(partition, 0), some, cuts.get(partition, ()))
            waiting = self._outstanding[partition] = self._outstanding.get(partition, 0) + len(some)
            if waiting >= self.most_records:
                full.append(partition)
        self._full.update(full)
        self._delivered += 1
        self._in_transit.append((self._delivered, {one: some[0].offset for one, some in records.items()}))
        return message, full

    def release(self, partition: TopicPartition, count: int, received: int) -> bool:
        """Note that ``count`` records have left the asyncio loop. Return whether the partition is to be resumed.

        ``received`` messages had arrived then. Calls of the program that follow know of these, too; those that are on
        their way here need not.
        """
        while self._in_transit and self._in_transit[0][0] <= received:
            self._in_transit.popleft()
        left = self._outstanding[partition] = self._outstanding.get(partition, 0) - count
        if left <= 0:
            self.most_records = min(2 * self.most_records, _MOST_RECORDS)
        if left >= self.most_records or partition not in self._full:
            return False
        self._full.discard(partition)
        return partition not in self._paused

    def pause(self, partition: TopicPartition) -> None:
        """Note that the program has paused the partition."""
        self._paused.add(partition)

    def resume(self, partition: TopicPartition) -> bool:
        """Undo `pause`. Return whether the partition is to be resumed."""
        self._paused.discard(partition)
        return partition not in self._full

    def begin_epoch(self, partition: TopicPartition, epoch: int) -> bool:
        """Note a seek: waiting records and those in transit no longer count, because no call will release them.

        Return whether the partition is to be resumed.
        """
        self._epochs[partition] = epoch
        for _, first in self._in_transit:
            first.pop(partition, None)
        self._outstanding.pop(partition, None)
        if partition not in self._full:
            return False
        self._full.discard(partition)
        return partition not in self._paused

    def begin(self, partition: TopicPartition) -> None:
        """Count the records of a newly assigned partition from 0."""
        self._outstanding.pop(partition, None)

    def forget(self, partition: TopicPartition) -> None:
        """Drop everything about a partition that is no longer assigned, except for its epoch."""
        for _, first in self._in_transit:
            first.pop(partition, None)
        self._outstanding.pop(partition, None)
        self._portions.forget(partition)
        self._full.discard(partition)
        self._paused.discard(partition)

    def first_in_transit(self, partition: TopicPartition, received: int) -> int | None:
        """Return the first offset of the partition in messages after the ``received`` ones; None if there is none."""
        for number, first in self._in_transit:
            if number > received and partition in first:
                return first[partition]
        return None
