"""Requests that wait for the active controller hold no handler slots, so that all others continue meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.unit.broker_stub.api.node import running_node
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.message import Request

REQUESTS = {
    "CreateTopics": (
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000),
        7,
    ),
    "Metadata": (MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 9),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_change_that_waits_for_the_controller_holds_no_handler_slot(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, version = REQUESTS[name]
    create_topics = LocalControllerGateway.create_topics
    reached, decided = trio.Event(), trio.Event()

    async def decide_later(self: LocalControllerGateway, *args: Any, **kwargs: Any) -> Any:
        reached.set()
        await decided.wait()
        return await create_topics(self, *args, **kwargs)

    monkeypatch.setattr(LocalControllerGateway, "create_topics", decide_later)

    async def ask(request: Request[Any]) -> None:
        await node.call(request, version)

    async with running_node() as node, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ask, request)
        await reached.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert node.broker.sockets.slots.free == node.broker.config.num_io_threads
        decided.set()
