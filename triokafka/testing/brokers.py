"""Brokers in this process, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from triokafka.world import RealWorld, World
from triokafka.world_memory import MemoryStorage

if TYPE_CHECKING:
    from triokafka.broker_stub.server import Broker


@asynccontextmanager
async def running_broker(*, world: World | None = None, **options: Any) -> AsyncIterator[Broker]:
    """Run a broker in this process for the length of the block; ``broker.bootstrap_servers`` is its address.

    It listens on a free loopback port and keeps everything in memory. ``options`` are broker options under Kafka's
    names in snake_case (``num_partitions=3``), ``world`` the world to run in (the real one when left out; pass a
    simulated host's to run it there).

    Raises:
        ConfigurationError: an option is unknown or its value cannot be used.
    """
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.server import Broker

    if world is None:
        world = RealWorld()
        world.storage = MemoryStorage(crashable=False)
    async with Broker(BrokerConfig.for_tests(**{"log_dirs": ("/data",), **options}), world=world) as broker:
        yield broker
