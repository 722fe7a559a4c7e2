"""Commits, and offsets that are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triokafka.blocking.consumer.part import ConsumerPart, check_offsets, check_partitions
from triokafka.blocking.consumer.session import Offsets, OnCommit
from triokafka.blocking.future import Future
from triokafka.errors import IllegalStateError
from triokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class OffsetPart(ConsumerPart):
    """The part of `KafkaConsumer` about offsets."""

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit offsets, by default those behind what was handed out, and wait for the answer.

        Raises:
            CommitFailedError: the group has gone on without this consumer.
            KafkaTimeoutError: no answer within ``timeout_ms``.
            IllegalStateError: there is no ``group_id``.
            TypeError: offsets are no dict of `TopicPartition` and `OffsetAndMetadata`.
        """
        self._check_group()
        check_offsets(offsets)
        self._run_commit_callbacks()
        session = self._session

        async def commit() -> None:
            wanted = session.positions() if offsets is None else offsets
            limit = float("inf") if timeout_ms is None else timeout_ms
            if wanted:
                await session.consumer.commit(wanted, timeout_ms=limit)

        self._ask(commit)

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> Future:
        """Commit as `commit` does, in the background.

        ``callback(offsets, error or None)`` is called by the next `poll`, `commit`, `close`, or step of the iteration
        after it is done; ``default_offset_commit_callback`` without one.

        Raises:
            IllegalStateError, TypeError: as `commit`.
        """
        self._check_group()
        check_offsets(offsets)
        self._run_commit_callbacks()
        future = Future()
        self._ask(self._session.commit_async, offsets, callback, future)
        return future

    def _check_group(self) -> None:
        if self.config["group_id"] is None:
            raise IllegalStateError("Requires group_id")

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """The group's committed offset, with ``metadata`` as an `OffsetAndMetadata`; None when there is none.

        Raises:
            IllegalStateError: there is no ``group_id``.
            KafkaTimeoutError: no answer within ``timeout_ms``.
        """
        self._check_group()
        check_partitions(partition, one=True)
        consumer = self._session.consumer

        async def ask() -> OffsetAndMetadata | None:
            return await consumer.committed(partition, timeout_ms=float("inf") if timeout_ms is None else timeout_ms)

        found = self._ask(ask)
        return found if found is None or metadata else found.offset

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition with at least the given timestamp in milliseconds; None without one.

        Raises:
            ValueError: a negative timestamp.
            KafkaTimeoutError: no answer within ``timeout_ms``, ``request_timeout_ms`` by default.
        """
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {partition} is {timestamp}. The target time cannot be negative."
                )
        wanted = {partition: int(timestamp) for partition, timestamp in timestamps.items()}
        consumer = self._session.consumer
        return self._ask(lambda: consumer.offsets_for_times(wanted, timeout_ms=self._patience(timeout_ms)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition. Raises as `offsets_for_times`."""
        consumer = self._session.consumer
        return self._ask(lambda: consumer.beginning_offsets(partitions, timeout_ms=self._patience(timeout_ms)))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get. Raises as `offsets_for_times`."""
        consumer = self._session.consumer
        return self._ask(lambda: consumer.end_offsets(partitions, timeout_ms=self._patience(timeout_ms)))

    def _patience(self, timeout_ms: float | None) -> float:
        patience: float = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        return patience
