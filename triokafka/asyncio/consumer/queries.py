"""Questions of an `AIOKafkaConsumer` to the cluster, which the SDK's consumer asks: offsets and topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import triokafka
from triokafka.asyncio.consumer.session import ConsumerSession
from triokafka.asyncio.structs import OffsetAndTimestamp
from triokafka.structs import TopicPartition


class Queries:
    """Methods of `AIOKafkaConsumer`, which has their contracts. All but committed offsets take at most
    ``request_timeout_ms``."""

    def __init__(self, session: ConsumerSession, request_timeout_ms: float) -> None:
        self._session = session
        self._limit_ms = request_timeout_ms

    async def _ask(self, do: Callable[[triokafka.Consumer], Awaitable[Any]]) -> Any:
        session = self._session

        async def work() -> Any:
            return await do(session.consumer)

        return await session.ask(work)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset; None without one."""
        found = (await self._ask(lambda consumer: consumer.committed([partition]))).get(partition)
        return None if found is None or found.offset < 0 else int(found.offset)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition with at least the given timestamp; None without one."""
        wanted = {}
        for partition, timestamp in timestamps.items():
            wanted[partition] = int(timestamp)
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {partition} is {timestamp}. The target time cannot be negative."
                )
        found = await self._ask(lambda consumer: consumer.offsets_for_times(wanted, timeout_ms=self._limit_ms))
        return {
            partition: None if offset is None else OffsetAndTimestamp(offset.offset, offset.timestamp)
            for partition, offset in found.items()
        }

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        wanted = list(partitions)
        return dict(await self._ask(lambda consumer: consumer.beginning_offsets(wanted, timeout_ms=self._limit_ms)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition."""
        wanted = list(partitions)
        return dict(await self._ask(lambda consumer: consumer.end_offsets(wanted, timeout_ms=self._limit_ms)))

    async def topics(self) -> set[str]:
        """Return all topics that the client may see."""
        return set(await self._ask(lambda consumer: consumer.topics(timeout_ms=self._limit_ms)))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions; None if the consumer has no metadata of it."""
        found = self._session.network.cluster.topics.get(topic)
        return None if found is None else set(found.partitions)
