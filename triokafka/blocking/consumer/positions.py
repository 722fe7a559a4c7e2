"""Where reading goes on, and whether."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.blocking.consumer.part import ConsumerPart, check_partitions
from triokafka.errors import IllegalStateError, KafkaTimeoutError
from triokafka.structs import TopicPartition


class UnassignedPartitionError(IllegalStateError, KeyError):
    """A partition is not assigned to the consumer. kafka-python raises `KeyError` here, and elsewhere
    `IllegalStateError`."""


class PositionPart(ConsumerPart):
    """The part of `KafkaConsumer` about positions."""

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the record that comes next; waits until it is known. None when it is not in time.

        Raises:
            TypeError: no `TopicPartition`.
            IllegalStateError: the partition is not assigned.
        """
        check_partitions(partition, one=True)
        session = self._session

        async def find() -> int | None:
            if partition not in session.consumer.assignment():
                raise IllegalStateError("Partition is not assigned")
            known = session.position(partition)
            limit = float("inf") if timeout_ms is None else timeout_ms
            return known if known is not None else await session.consumer.position(partition, timeout_ms=limit)

        try:
            return self._ask(find)
        except KafkaTimeoutError:
            return None

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset that the partition's next record will get, as the last fetch said; None before one.

        Raises:
            TypeError, IllegalStateError: as `position`.
        """
        check_partitions(partition, one=True)
        found = self._do(lambda: self._session.consumer.health().partitions.get(partition))
        if found is None:
            raise IllegalStateError("Partition is not assigned")
        return found.high_watermark

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; what was fetched is kept.

        Raises:
            TypeError: no `TopicPartition`.
            KeyError: a partition is not assigned; it is an `IllegalStateError` as well.
        """
        self._check_assigned(partitions)
        self._buffered.put_back()
        self._do(self._session.consumer.pause, *partitions)
        self._buffered.paused.update(partitions)

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return set(self._do(self._session.consumer.paused))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises as that."""
        self._check_assigned(partitions)
        self._do(self._session.consumer.resume, *partitions)
        self._buffered.paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset.

        Raises:
            TypeError: no `TopicPartition`.
            ValueError: a negative offset, or the partition is not assigned.
        """
        check_partitions(partition, one=True)
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        if partition not in self._assigned():
            raise ValueError("Unassigned partition")
        self._do(self._session.consumer.seek, partition, offset)
        self._buffered.drop(partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset that is there; in all partitions if none is named. Raises as `seek`."""
        self._seek_to(self._session.consumer.seek_to_beginning, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; in all partitions if none is named. Raises as `seek`."""
        self._seek_to(self._session.consumer.seek_to_end, partitions)

    def _seek_to(self, seek: Callable[..., None], partitions: tuple[TopicPartition, ...]) -> None:
        check_partitions(*partitions)
        assigned = self._assigned()
        if not partitions and not assigned:
            raise ValueError("No partitions are currently assigned")
        for partition in partitions:
            if partition not in assigned:
                raise ValueError(f"Unassigned partition: {partition}")
        self._do(seek, *partitions)
        for partition in partitions or assigned:
            self._buffered.drop(partition)

    def _check_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        check_partitions(*partitions)
        assigned = self._assigned()
        for partition in partitions:
            if partition not in assigned:
                raise UnassignedPartitionError(partition)

    def _assigned(self) -> set[TopicPartition]:
        return set(self._do(self._session.consumer.assignment))
