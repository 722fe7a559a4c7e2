"""Injected faults: which requests match, how often, and their effect on the client."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from triokafka import errors
from triokafka.broker_stub.faults.faults import Close, Fault, Faults, RequestFault
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.list_groups import ListGroupsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.world import Stream

PRODUCE = 0


async def end_of(node: Node, topic: str) -> int:
    (partition,) = await node.fetch(topic, 0)
    return partition.high_watermark


def test_fault_matches_its_conditions_and_is_used_up() -> None:
    """Also after some were let pass."""
    faults = Faults()
    fault = Fault(errors.NotLeaderForPartitionError, PRODUCE, "t", 1, times=2, skip=1)
    faults.arm(fault)
    assert faults.for_item(1, "t", 1) is faults.for_item(PRODUCE, "u", 1) is faults.for_item(PRODUCE, "t", 0) is None
    found = [faults.for_item(PRODUCE, "t", 1) for _ in range(4)]
    assert found == [None, fault, fault, None]
    assert not faults.armed


def test_a_fault_without_limit_continues_until_it_is_disarmed() -> None:
    """``times=-1``."""
    faults = Faults()
    fault = RequestFault(times=-1, delay_ms=1)
    faults.arm(fault)
    assert [faults.for_request(number, "") for number in range(9)] == [fault] * 9
    assert faults.all == [fault]
    faults.disarm(fault)
    faults.disarm(fault)
    assert faults.for_request(0, "") is None


def test_a_fault_by_chance_happens_about_that_often_and_the_same_with_the_same_seed() -> None:
    """The randomness is the world's."""

    def hits(seed: int) -> list[bool]:
        faults = Faults(random.Random(seed).random)
        faults.arm(RequestFault(times=-1, chance=0.25))
        return [faults.for_request(0, "") is not None for _ in range(1000)]

    assert hits(1) == hits(1) != hits(2)
    assert 200 < sum(hits(1)) < 300


def test_a_request_fault_may_be_for_one_client() -> None:
    """By API and client id."""
    faults = Faults()
    faults.arm(RequestFault(api_key=3, client_id="a", times=-1))
    assert faults.for_request(3, "b") is faults.for_request(4, "a") is None
    assert faults.for_request(3, "a") is not None


async def test_an_error_before_the_append_writes_nothing_and_one_after_it_does() -> None:
    """The client cannot tell them apart."""
    async with running_node() as node:
        await node.create("t")
        faults = node.broker.faults
        faults.arm(Fault(errors.RequestTimedOutError, PRODUCE, times=1))
        assert (await node.produce("t", batch(b"a"))).error_code == errors.RequestTimedOutError.code
        assert await end_of(node, "t") == 0
        faults.arm(Fault(errors.RequestTimedOutError, PRODUCE, times=1, after_append=True))
        assert (await node.produce("t", batch(b"a"))).error_code == errors.RequestTimedOutError.code
        assert await end_of(node, "t") == 1
        assert (await node.produce("t", batch(b"a"))).error_code == 0


async def test_a_false_not_leader_names_the_leader_that_the_fault_says() -> None:
    """With the address, if there is such a broker (KIP-951)."""
    async with running_node() as node:
        await node.create("t")
        faults = node.broker.faults
        for leader, known in ((None, node.broker.node_id), ((9, 4), 9)):
            faults.arm(Fault(errors.NotLeaderForPartitionError, PRODUCE, leader=leader))
            response = await node.call(node.produce_request("t", batch(b"a"), version=10), 10)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == errors.NotLeaderForPartitionError.code
            assert answer.current_leader.leader_id == known
            assert len(response.node_endpoints) == (leader is None)
            faults.arm(Fault(errors.NotLeaderForPartitionError, 1, leader=leader))
            (partition,) = await node.fetch("t", 0, version=16)
            assert partition.current_leader.leader_id == known


async def test_other_apis_fail_as_a_whole() -> None:
    """With the error where the API's answer has it."""
    async with running_node() as node:
        faults = node.broker.faults
        faults.arm(Fault(errors.CoordinatorLoadInProgressError, 22))
        refused = await node.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        assert refused.error_code == errors.CoordinatorLoadInProgressError.code
        assert (
            await node.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        ).error_code == 0
        faults.arm(Fault(errors.LeaderNotAvailableError, 3))
        metadata = await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert [topic.error_code for topic in metadata.topics] == [errors.LeaderNotAvailableError.code]


async def connected(node: Node) -> Stream:
    host, _, port = node.broker.bootstrap_servers.partition(":")
    return await node.broker.world.connect(host, int(port))


async def send(node: Node, stream: Stream, number: int) -> None:
    request = node.produce_request("t", batch(b"a"))
    await stream.send(*encode_request(request, version=9, correlation_id=number, client_id="c"))


async def receive(stream: Stream) -> bytes:
    """Return the bytes received until the peer closes, or a whole frame is there."""
    data, buffer = b"", bytearray(4096)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        size = await stream.receive_into(memoryview(buffer))
        if not size:
            return data
        data += buffer[:size]
    return data


@pytest.mark.parametrize(("close", "written"), [("before", 0), ("after", 1), ("within", 1)])
async def test_a_connection_is_closed_around_an_answer(close: Close, written: int) -> None:
    """The client cannot know whether the broker executed the request."""
    async with running_node(world=memory_world()) as node:
        await node.create("t")
        node.broker.faults.arm(RequestFault(api_key=PRODUCE, close=close))
        stream = await connected(node)
        await send(node, stream, 1)
        got = await receive(stream)
        assert bool(got) is (close == "within")
        if got:
            assert len(got) < 4 + int.from_bytes(got[:4], "big")
        assert await end_of(node, "t") == written
        stream.close()


async def test_a_lost_answer_leaves_the_connection_as_it_is() -> None:
    """The next request on it is answered."""
    async with running_node(world=memory_world()) as node:
        await node.create("t")
        node.broker.faults.arm(RequestFault(api_key=PRODUCE, lose_answer=True))
        stream = await connected(node)
        await send(node, stream, 1)
        await send(node, stream, 2)
        answer = await receive(stream)
        number, response = decode_response(node.produce_request("t", b"").response_type, answer[4:], version=9)
        assert (number, response.responses[0].partition_responses[0].base_offset) == (2, 1)
        stream.close()


async def test_throttled_client_receives_its_throttle_time() -> None:
    """KIP-219. The connection's processor stops reading meanwhile; its own tests show that."""
    async with running_node() as node:
        await node.create("t")
        node.broker.faults.arm(RequestFault(api_key=PRODUCE, throttle_ms=700))
        response = await node.call(node.produce_request("t", batch(b"a")), 9)
        assert response.throttle_time_ms == 700
        assert (await node.call(ListGroupsRequest(), 3)).throttle_time_ms == 0


async def test_a_delayed_request_holds_no_handler_slot() -> None:
    """The broker handles the request when the delay is over, and not before."""
    async with running_node() as node:
        await node.create("t")
        node.broker.faults.arm(RequestFault(api_key=PRODUCE, delay_ms=50))
        started = trio.current_time()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.produce, "t", batch(b"a"))
            await trio.testing.wait_all_tasks_blocked()
            assert node.broker.sockets.slots.free == node.broker.config.num_io_threads
            assert await end_of(node, "t") == 0
        assert trio.current_time() - started >= 0.05
        assert await end_of(node, "t") == 1
