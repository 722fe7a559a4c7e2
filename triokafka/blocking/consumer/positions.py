"""The positions of `KafkaConsumer` in its partitions."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.blocking.consumer.calls import ConsumerCalls, check_partitions
from triokafka.blocking.consumer.session import ConsumerSession
from triokafka.errors import IllegalStateError, KafkaTimeoutError
from triokafka.record_buffer import RecordBuffer
from triokafka.structs import TopicPartition


class UnassignedPartitionError(IllegalStateError, KeyError):
    """The partition is not assigned to the consumer. kafka-python raises `KeyError` here, and elsewhere
    `IllegalStateError`."""


class ConsumerPositions:
    """Positions of assigned partitions: reading, seeking, pausing."""

    def __init__(self, session: ConsumerSession, calls: ConsumerCalls, buffered: RecordBuffer) -> None:
        self._session = session
        self._calls = calls
        self._buffered = buffered

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Return the offset of the next record; wait until it is known. None after ``timeout_ms``.

        Raises:
            TypeError: the argument is not a `TopicPartition`.
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
            return self._calls.ask(find)
        except KafkaTimeoutError:
            return None

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of a partition from the last fetch response; None before one.

        Raises:
            TypeError, IllegalStateError: as `position`.
        """
        check_partitions(partition, one=True)
        found = self._calls.do(lambda: self._session.consumer.health().partitions.get(partition))
        if found is None:
            raise IllegalStateError("Partition is not assigned")
        return found.high_watermark

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until `resume`; fetched records stay buffered.

        Raises:
            TypeError: the argument is not a `TopicPartition`.
            KeyError: a partition is not assigned; the error is an `IllegalStateError` as well.
        """
        self._check_assigned(partitions)
        self._buffered.put_back()
        self._calls.do(self._session.consumer.pause, *partitions)
        self._buffered.paused.update(partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._calls.do(self._session.consumer.paused))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises the same errors."""
        self._check_assigned(partitions)
        self._calls.do(self._session.consumer.resume, *partitions)
        self._buffered.paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset.

        Raises:
            TypeError: the argument is not a `TopicPartition`.
            ValueError: the offset is negative, or the partition is not assigned.
        """
        check_partitions(partition, one=True)
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        if partition not in self.assignment():
            raise ValueError("Unassigned partition")
        self._calls.do(self._session.consumer.seek, partition, offset)
        self._buffered.drop(partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset of these partitions, or of all. Raises as `seek`."""
        self._seek_to(self._session.consumer.seek_to_beginning, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all. Raises as `seek`."""
        self._seek_to(self._session.consumer.seek_to_end, partitions)

    def _seek_to(self, seek: Callable[..., None], partitions: tuple[TopicPartition, ...]) -> None:
        check_partitions(*partitions)
        assigned = self.assignment()
        if not partitions and not assigned:
            raise ValueError("No partitions are currently assigned")
        for partition in partitions:
            if partition not in assigned:
                raise ValueError(f"Unassigned partition: {partition}")
        self._calls.do(seek, *partitions)
        for partition in partitions or assigned:
            self._buffered.drop(partition)

    def _check_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        check_partitions(*partitions)
        assigned = self.assignment()
        for partition in partitions:
            if partition not in assigned:
                raise UnassignedPartitionError(partition)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._calls.do(self._session.consumer.assignment))
