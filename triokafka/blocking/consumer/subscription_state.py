"""The names of ``kafka.consumer.subscription_state`` that programs use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from triokafka.structs import TopicPartition

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]

Partitions = list[TopicPartition]


class ConsumerRebalanceListener(ABC):
    """Called when partitions are assigned or revoked, in the polling thread, within `KafkaConsumer.poll` or `close`.

    It may use the consumer. `poll` raises a `KafkaError` whose cause is the listener's exception.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> None:
        """Called before these partitions are revoked: the last moment to commit them."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> None:
        """Called after these partitions were assigned: the moment to seek."""

    def on_partitions_lost(self, lost: Any) -> None:
        """Called when other members may own these partitions already. Calls `on_partitions_revoked`."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """As `ConsumerRebalanceListener`, with coroutines. They run in the polling thread too, so they must not wait for
    I/O, sleeps or other tasks."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_revoked`."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_assigned`."""

    async def on_partitions_lost(self, lost: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_lost`."""
        await self.on_partitions_revoked(lost)
