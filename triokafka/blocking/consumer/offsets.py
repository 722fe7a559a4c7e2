"""The commits and offset lookups of `KafkaConsumer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from triokafka.blocking.consumer.calls import ConsumerCalls, check_offsets, check_partitions
from triokafka.blocking.consumer.session import ConsumerSession, Offsets, OnCommit
from triokafka.blocking.future import Future
from triokafka.errors import IllegalStateError
from triokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class ConsumerOffsets:
    """Commits, committed offsets, and lookups of offsets."""

    def __init__(self, session: ConsumerSession, calls: ConsumerCalls, config: Mapping[str, Any]) -> None:
        self._session = session
        self._calls = calls
        self._config = config

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit offsets, by default those after the returned records, and wait for the response.

        Raises:
            CommitFailedError: the group has rebalanced without this consumer.
            KafkaTimeoutError: no response within ``timeout_ms``.
            IllegalStateError: ``group_id`` is not set.
            TypeError: offsets are not a dict of `TopicPartition` and `OffsetAndMetadata`.
        """
        self._check_group()
        check_offsets(offsets)
        self._calls.run_commit_callbacks()
        session = self._session

        async def commit() -> None:
            wanted = session.positions() if offsets is None else offsets
            limit = float("inf") if timeout_ms is None else timeout_ms
            if wanted:
                await session.consumer.commit(wanted, timeout_ms=limit)

        self._calls.ask(commit)

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> Future:
        """Commit in the background; see `commit`.

        After the response, the next `poll`, `commit`, `close` or step of the iteration calls ``callback(offsets, error
        or None)``, or else ``default_offset_commit_callback``.

        Raises:
            IllegalStateError, TypeError: as in `commit`.
        """
        self._check_group()
        check_offsets(offsets)
        self._calls.run_commit_callbacks()
        future = Future()
        self._calls.ask(self._session.commit_async, offsets, callback, future)
        return future

    def _check_group(self) -> None:
        if self._config["group_id"] is None:
            raise IllegalStateError("Requires group_id")

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset, or with ``metadata`` the `OffsetAndMetadata`; None without one.

        Raises:
            IllegalStateError: ``group_id`` is not set.
            KafkaTimeoutError: no response within ``timeout_ms``.
        """
        self._check_group()
        check_partitions(partition, one=True)
        consumer = self._session.consumer

        async def ask() -> OffsetAndMetadata | None:
            return await consumer.committed(partition, timeout_ms=float("inf") if timeout_ms is None else timeout_ms)

        found = self._calls.ask(ask)
        return found if found is None or metadata else found.offset

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first record of each partition at or after a timestamp in milliseconds; None without one.

        Raises:
            ValueError: a timestamp is negative.
            KafkaTimeoutError: no response within ``timeout_ms``, ``request_timeout_ms`` by default.
        """
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {partition} is {timestamp}. The target time cannot be negative."
                )
        wanted = {partition: int(timestamp) for partition, timestamp in timestamps.items()}
        consumer = self._session.consumer
        return self._calls.ask(lambda: consumer.offsets_for_times(wanted, timeout_ms=self._timeout_ms(timeout_ms)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition. Raises as `offsets_for_times`."""
        consumer = self._session.consumer
        return self._calls.ask(lambda: consumer.beginning_offsets(partitions, timeout_ms=self._timeout_ms(timeout_ms)))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition. Raises as `offsets_for_times`."""
        consumer = self._session.consumer
        return self._calls.ask(lambda: consumer.end_offsets(partitions, timeout_ms=self._timeout_ms(timeout_ms)))

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        limit: float = self._config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        return limit
