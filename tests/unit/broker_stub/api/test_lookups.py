"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId and FindCoordinator."""

from __future__ import annotations

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, batch, running_node
from triokafka import errors
from triokafka.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from triokafka.protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def filled(node: Node) -> None:
    """A topic with records at 1000, 1001 and 5000 ms."""
    await node.create("t")
    await node.produce("t", batch(b"a", b"b", timestamp=1000))
    await node.produce("t", batch(b"c", timestamp=5000))


async def look_up(node: Node, timestamp: int, version: int = 7, partition: int = 0) -> ListOffsetsPartitionResponse:
    """One look-up."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
            )
        ],
    )
    return (await node.call(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
async def test_offsets_are_found_by_time_and_at_both_ends(version: int) -> None:
    async with running_node() as node:
        await filled(node)
        found = {}
        for timestamp in (-2, -1, 0, 1001, 1002, 5001):
            response = await look_up(node, timestamp, version)
            assert response.error_code == 0
            found[timestamp] = (response.offset, response.timestamp)
        assert found == {
            -2: (0, -1),
            -1: (3, -1),
            0: (0, 1000),
            1001: (1, 1001),
            1002: (2, 5000),
            5001: (-1, -1),
        }


@pytest.mark.parametrize(
    ("timestamp", "since", "offset"), [(-3, 7, 2), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, -1)]
)
async def test_special_timestamps_have_the_version_that_brought_them(timestamp: int, since: int, offset: int) -> None:
    """(KIP-734, KIP-405, KIP-1005, KIP-1023)."""
    async with running_node() as node:
        await filled(node)
        for version in range(1, 12):
            response = await look_up(node, timestamp, version)
            if version < since:
                assert response.error_code == errors.UnsupportedVersionError.code
            else:
                assert (response.error_code, response.offset) == (0, offset)


async def test_look_up_of_an_unknown_partition_is_its_own_error() -> None:
    async with running_node() as node:
        await filled(node)
        assert (await look_up(node, -1, partition=3)).error_code == errors.UnknownTopicOrPartitionError.code


async def test_partition_named_twice_is_refused() -> None:
    async with running_node() as node:
        await filled(node)
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        response = await node.call(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]), 5
        )
        codes = [partition.error_code for partition in response.topics[0].partitions]
        assert codes == [errors.InvalidRequestError.code] * 2


@pytest.mark.parametrize("version", range(2, 5))
async def test_end_of_an_epoch_and_fencing(version: int) -> None:
    async with running_node() as node:
        await filled(node)
        epoch = node.broker.image.topics["t"].partitions[0].leader_epoch

        async def ask(leader_epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
            )
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
            found = (await node.call(request, version)).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert await ask(epoch) == (0, epoch, 3)
        assert await ask(epoch + 5) == (0, -1, -1)
        assert await ask(epoch, current=epoch + 1) == (errors.UnknownLeaderEpochError.code, -1, -1)
        assert await ask(epoch, partition=4) == (errors.UnknownTopicOrPartitionError.code, -1, -1)


@pytest.mark.parametrize("version", range(0, 3))
async def test_records_are_deleted_and_the_rest_stays(version: int) -> None:
    async with running_node() as node:
        await filled(node)

        async def delete(offset: int, topic: str = "t") -> tuple[int, int]:
            asked = DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
            response = await node.call(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), version)
            result = response.topics[0].partitions[0]
            return result.error_code, result.low_watermark

        assert await delete(2) == (0, 2)
        assert (await node.fetch("t", 1))[0].error_code == errors.OffsetOutOfRangeError.code
        assert (await look_up(node, -2)).offset == 2
        assert await delete(9) == (errors.OffsetOutOfRangeError.code, -1)
        assert await delete(-1) == (0, 3)
        assert await delete(0, "absent") == (errors.UnknownTopicOrPartitionError.code, -1)
        assert await delete(0, "__consumer_offsets") == (errors.InvalidTopicError.code, -1)


@pytest.mark.parametrize("version", range(0, 6))
async def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    async with running_node() as node:
        answers = [
            await node.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), version)
            for _ in range(3)
        ]
        assert [(a.error_code, a.producer_epoch) for a in answers] == [(0, 0)] * 3
        assert len({a.producer_id for a in answers}) == 3


async def test_ids_stay_unique_when_many_producers_start_at_once_and_blocks_run_out() -> None:
    async with running_node() as node:
        ids: list[int] = []

        async def init() -> None:
            for _ in range(150):
                ids.append((await node.call(InitProducerIdRequest(transactional_id=None), 1)).producer_id)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(init)
        assert len(set(ids)) == 1500


@pytest.mark.parametrize("version", range(0, 7))
async def test_coordinator_of_a_group_is_found_and_its_topic_made(version: int) -> None:
    """KIP-699."""
    async with running_node() as node:
        if version < 4:
            response = await node.call(FindCoordinatorRequest(key="g"), version)
            found = [(response.error_code, response.node_id, f"{response.host}:{response.port}")]
        else:
            response = await node.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
            assert [c.key for c in response.coordinators] == ["g", "h"]
            found = [(c.error_code, c.node_id, f"{c.host}:{c.port}") for c in response.coordinators]
        assert set(found) == {(0, 1, node.broker.bootstrap_servers)}
        assert len(node.broker.image.topics["__consumer_offsets"].partitions) == 4


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("key_type", [2, 9])
async def test_coordinators_that_are_not_served_are_refused_with_a_sentence(version: int, key_type: int) -> None:
    """These are share groups, and types that do not exist."""
    expected = errors.InvalidRequestError.code
    async with running_node() as node:
        request = FindCoordinatorRequest(key_type=key_type)
        if version < 4:
            request.key = "x"
            response = await node.call(request, version)
            assert response.error_code == expected
            assert response.error_message
        else:
            request.coordinator_keys = ["x"]
            (found,) = (await node.call(request, version)).coordinators
            assert (found.key, found.error_code) == ("x", expected)
            assert found.error_message
