"""The end of a node: its tasks end, whatever fails meanwhile."""

from __future__ import annotations

import pytest
import trio

from tests.unit.broker_stub.clusters import MemoryWorld
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node


async def test_tasks_end_though_a_part_of_the_stop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(BrokerConfig.for_tests(log_dirs=("/data",)), world=MemoryWorld())

    async def fail(*, cleanly: bool, signs_off: bool) -> None:
        raise OSError("the network is gone")

    task = trio.lowlevel.current_task()
    before = list(task.child_nurseries)
    with pytest.raises(OSError, match="the network is gone"):
        async with node:
            monkeypatch.setattr(node.broker, "stop_serving", fail)
            [own] = [nursery for nursery in task.child_nurseries if nursery not in before]
            assert own.child_tasks
    assert task.child_nurseries == before and not own.child_tasks
