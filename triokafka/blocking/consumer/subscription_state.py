"""The names of ``kafka.consumer.subscription_state`` that programs use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from triokafka.structs import TopicPartition

__all__ = ["AsyncConsumerRebalanceListener", "ConsumerRebalanceListener"]

Partitions = list[TopicPartition]


class ConsumerRebalanceListener(ABC):
    """Told when partitions come and go, in the thread that polls, inside of `KafkaConsumer.poll` or `close`.

    It may use the consumer. What it raises, `poll` raises as the cause of a `KafkaError`.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> None:
        """These partitions are about to go: the last moment to commit them."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> None:
        """These partitions have come: the moment to seek."""

    def on_partitions_lost(self, lost: Any) -> None:
        """These partitions may have other owners already. Calls `on_partitions_revoked`."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """As `ConsumerRebalanceListener`, with coroutines. They run in the thread that polls too, and so must not wait for
    anything but other coroutines that do not."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_revoked`."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_assigned`."""

    async def on_partitions_lost(self, lost: Any) -> None:
        """As `ConsumerRebalanceListener.on_partitions_lost`."""
        await self.on_partitions_revoked(lost)
