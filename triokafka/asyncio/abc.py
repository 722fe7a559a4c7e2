"""The base classes of ``aiokafka.abc``."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(abc.ABC):
    """Called when partitions are revoked or assigned. Methods may be functions or coroutines.

    They run in the asyncio loop, may use the consumer, and the rebalance waits for them, at most
    ``rebalance_timeout_ms``. Their exceptions are logged.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Any:
        """Called before a rebalance with the partitions that were assigned: the last moment to commit them.

        Not called by `AIOKafkaConsumer.stop`.
        """

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Any:
        """Called after a rebalance, before the consumer fetches: the moment to seek."""


class AbstractTokenProvider(abc.ABC):
    """Provides tokens for SASL OAUTHBEARER."""

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a valid token. Called for every new connection, in the asyncio loop."""

    def extensions(self) -> dict[str, str]:
        """Return the extensions of the client's first message; none by default."""
        return {}
