"""The raw fetches that the cluster benchmark compares a follower's catch-up with."""

from __future__ import annotations

import pytest
import trio

from benchmarks.disk_to_socket import megabytes_per_second
from triokafka import Producer
from triokafka.cli.load.brokers import MeasurementError
from triokafka.testing import running_broker

RECORDS = 300
VALUE = b"v" * 10_000
"""Three megabytes in all, so that one fetch cannot bring everything."""


async def test_raw_fetches_read_a_log_to_its_end() -> None:
    async with running_broker(auto_create_topics_enable=True) as broker:
        address = broker.bootstrap_servers
        async with Producer(bootstrap_servers=address) as producer:
            for _ in range(RECORDS):
                await producer.send("t", VALUE, partition=0)
        assert await trio.to_thread.run_sync(megabytes_per_second, address, "t", RECORDS) > 0


async def test_raw_fetch_beyond_the_end_of_a_log_is_an_error_of_the_measurement() -> None:
    async with running_broker(auto_create_topics_enable=True) as broker:
        address = broker.bootstrap_servers
        async with Producer(bootstrap_servers=address) as producer:
            await producer.send("t", VALUE, partition=0)
        with pytest.raises(MeasurementError, match="fetching t from offset 1: error 0, no records"):
            await trio.to_thread.run_sync(megabytes_per_second, address, "t", 2)
