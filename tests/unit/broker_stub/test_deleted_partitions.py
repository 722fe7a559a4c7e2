"""Memory after partitions were deleted."""

from __future__ import annotations

import gc
import weakref

from tests.unit.broker_stub.api.node import batch, running_node
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest


async def test_logs_of_deleted_partitions_leave_no_cycles() -> None:
    """The broker's command leaves what stays for long out of the search for cycles."""
    async with running_node() as node:
        for name, partitions in (("made-in-threads", 8), ("made-at-once", 2)):
            await node.create(name, partitions)
            await node.produce(name, batch(b"a"))
            logs = [weakref.ref(partition.log) for partition in node.broker.replicas.partitions()]
            assert len(logs) == partitions
            was_enabled = gc.isenabled()
            gc.disable()
            try:
                await node.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
                assert [log() for log in logs] == [None] * partitions
            finally:
                if was_enabled:
                    gc.enable()
