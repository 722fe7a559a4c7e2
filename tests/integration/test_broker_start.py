"""Starting, stopping and restarting a broker on a disk, with the failures that can happen there."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node as BrokerNode
from triokafka.broker_stub.node_storage import NodeStorage
from triokafka.errors import ConfigurationError, IllegalStateError
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from triokafka.records import decode_records
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld


async def commit(node: Node, offset: int) -> int:
    """Commit an offset of the group ``g`` on ``t-0``; return the error code."""
    await node.call(FindCoordinatorRequest(key="g"), 1)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
            )
        ],
    )
    return (await node.call(request, 5)).topics[0].partitions[0].error_code


async def committed(node: Node) -> int:
    """Return the group's committed offset once its coordinator has loaded it."""
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    while True:
        response = await node.call(request, 5)
        if response.error_code == 0:
            return response.topics[0].partitions[0].committed_offset


async def fill(node: Node) -> None:
    """Create a topic, records, a committed offset, and a producer id."""
    await node.create("t", partitions=2, retention_ms="-1")
    await node.produce("t", batch(b"a", b"b"))
    await node.produce("t", batch(b"c"), partition=1)
    assert await commit(node, 1) == 0


async def check(node: Node) -> None:
    """Check that all of it still exists."""
    first, second = await node.fetch("t", 0, 0)
    assert [r.value for r in decode_records(first.records or b"")] == [b"a", b"b"]
    assert [r.value for r in decode_records(second.records or b"")] == [b"c"]
    assert (first.high_watermark, second.high_watermark) == (2, 1)
    assert await committed(node) == 1
    assert (await node.produce("t", batch(b"d"))).base_offset == 2


async def test_no_data_is_lost_by_a_clean_stop(tmp_path: Path) -> None:
    """The disk is real: topics retain their ids, records and committed offsets; producer ids are not reused."""
    directories = (str(tmp_path / "a"), str(tmp_path / "b"))
    async with running_node(world=RealWorld(), log_dirs=directories) as node:
        await fill(node)
        cluster_id, topic_id = node.broker.cluster_id, node.broker.image.topics["t"].topic_id
        first = await node.call(InitProducerIdRequest(transactional_id=None), 1)
        for directory in directories:
            assert not (Path(directory) / ".kafka_cleanshutdown").exists()
    for directory in directories:
        assert (Path(directory) / ".kafka_cleanshutdown").exists()
    async with running_node(world=RealWorld(), log_dirs=directories) as node:
        assert (node.broker.cluster_id, node.broker.image.topics["t"].topic_id) == (cluster_id, topic_id)
        await check(node)
        again = await node.call(InitProducerIdRequest(transactional_id=None), 1)
        assert again.producer_id > first.producer_id


async def test_no_acknowledged_data_is_lost_when_the_process_is_killed() -> None:
    """The killed process flushes and closes nothing."""
    world = memory_world()
    storage = MemoryStorage()
    world.storage = storage
    async with running_node(world=world) as node:
        await fill(node)
        # The state after a kill: another world opens the same disk, while this one can no longer write.
        storage.kill()
        survivor = memory_world()
        survivor.storage = storage
        async with running_node(world=survivor) as again:
            await check(again)


async def test_broker_starts_only_once() -> None:
    """Create a new broker object instead."""
    process = BrokerNode(BrokerConfig.for_tests(log_dirs=("/data",)), world=memory_world())
    async with process:
        pass
    with pytest.raises(IllegalStateError, match="once"):
        async with process:
            pass


async def test_port_in_use_is_an_error_with_the_address() -> None:
    """Nothing leaks: the same directory can be started on another port."""
    world = memory_world()
    async with running_node() as node:
        address = node.broker.bootstrap_servers
        with pytest.raises(ConfigurationError, match=rf"{address} .*in use"):
            async with running_node(world=world, listeners=(f"PLAINTEXT://{address}",)):
                pass
    async with running_node(world=world):
        pass


async def test_insecure_listener_with_security_options_is_refused() -> None:
    """Otherwise the listener would be served in plaintext."""
    config = BrokerConfig.for_tests(
        listeners=("SECURE://127.0.0.1:0",), listener_security_protocol_map=("SECURE:SASL_SSL",)
    )
    with pytest.raises(ConfigurationError, match="SECURE: a listener with TLS needs a certificate"):
        BrokerNode(config, world=memory_world())


async def test_data_directory_of_another_broker_is_refused_and_stays_untouched(tmp_path: Path) -> None:
    directories = (str(tmp_path),)
    async with running_node(world=RealWorld(), log_dirs=directories) as node:
        await fill(node)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(ConfigurationError, match="in use by another broker"):
            async with running_node(world=RealWorld(), log_dirs=directories):
                pass
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        await check(node)


async def test_file_in_place_of_the_data_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(ConfigurationError, match=str(path)):
        async with running_node(world=RealWorld(), log_dirs=(str(path),)):
            pass


async def test_failure_of_a_part_stops_the_broker_and_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The process must not keep running without serving."""

    serves = trio.Event()

    async def fail(self: NodeStorage) -> None:
        await serves.wait()
        raise RuntimeError("a defect")

    monkeypatch.setattr(NodeStorage, "_checkpoint_high_watermarks", fail)
    async with running_node() as node:
        serves.set()
        await node.process.wait_stopped()
        assert isinstance(node.process.failure, RuntimeError)
        assert "a defect" in caplog.text
        host, port = node.broker.bootstrap_servers.split(":")
        with pytest.raises(OSError, match="refused"):
            await node.broker.world.connect(host, int(port))


async def test_exception_of_the_body_leaves_the_block_as_itself() -> None:
    """The broker has stopped by then."""
    with pytest.raises(ZeroDivisionError):
        async with running_node() as node:
            await node.create("t")
            raise ZeroDivisionError
    with pytest.raises(Exception, match=r"closed|stopped"):
        await node.create("u")
