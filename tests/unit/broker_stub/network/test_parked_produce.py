"""A connection holds a produce request until its records are in the log, and nothing while it waits for the answer."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, running_node
from tests.unit.broker_stub.network.streams import ScriptedStream
from tests.unit.broker_stub.test_disks import DiskWorld
from triokafka import errors
from triokafka.broker_stub.network.fair_scheduler import FairScheduler
from triokafka.broker_stub.network.framing import FrameBuffers
from triokafka.broker_stub.network.processor import ConnectionProcessor, Shared
from triokafka.broker_stub.network.response_memory import ResponseMemory
from triokafka.broker_stub.request.request_memory import RequestMemory
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from triokafka.protocol.frames import RequestHeader, decode_response, encode_request
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.structs import Buffer

VALUE = b"v" * 100_000


class Wire:
    """Connections to a broker whose disk holds its syncs back, with memory for one request and a little more."""

    def __init__(self, node: Node, world: DiskWorld) -> None:
        self.node = node
        self.world = world
        self.memory = RequestMemory(150_000)
        self.buffers = FrameBuffers()

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        """Send a request over a connection of its own; the answer."""
        (answer,) = await self.produce_often(request, 1)
        return answer

    async def produce_often(self, request: ProduceRequest, times: int) -> list[ProduceResponse]:
        """Send a request so many times over one connection; the answers."""
        frame = b"".join(encode_request(request, version=9, correlation_id=7, client_id="test"))
        stream = ScriptedStream(frame * times)
        broker = self.node.broker
        slots, scheduler = broker.sockets.slots, FairScheduler()
        shared = Shared(
            broker.dispatcher, slots, self.memory, ResponseMemory(), self.buffers, scheduler, self.world, 10**6
        )
        await ConnectionProcessor(stream, connection_id="connection", listener="PLAINTEXT", shared=shared).run()
        size = len(stream.sent) // times
        answers = [bytes(stream.sent[begin + 4 : begin + size]) for begin in range(0, len(stream.sent), size)]
        return [decode_response(ProduceResponse, answer, version=9)[1] for answer in answers]


@asynccontextmanager
async def wired(acks: int) -> AsyncIterator[tuple[Wire, ProduceRequest]]:
    """A broker, and a request that waits for the disk after its records were appended."""
    world = DiskWorld()
    async with running_node(world=world) as node:
        await node.create("t", 2, flush_messages="1")
        world.hold = trio.Event()
        request = node.produce_request("t", batch(VALUE), acks=acks)
        request.timeout_ms = 600_000  # it is the disk that ends the wait
        try:
            yield Wire(node, world), request
        finally:
            world.hold.set()


@pytest.mark.parametrize("acks", [1, -1])
async def test_parked_produce_keeps_neither_its_frame_nor_a_share_of_the_memory(acks: int) -> None:
    """The next request has room and gets the same buffer, however many wait."""
    async with wired(acks) as (wire, request):
        answers: list[ProduceResponse] = []

        async def produce() -> None:
            answers.append(await wire.produce(request))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(produce)
                await trio.testing.wait_all_tasks_blocked()
                assert (wire.memory.used, wire.memory.waiting) == (0, 0)
                assert wire.buffers.kept == FrameBuffers.room_for(len(VALUE))
            assert answers == []
            assert wire.world.hold is not None
            wire.world.hold.set()
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        bases = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert (codes, sorted(bases)) == ([0] * 5, [0, 1, 2, 3, 4])
        assert wire.memory.used == 0


async def test_refused_partition_of_a_parked_produce_keeps_nothing_either() -> None:
    async with wired(1) as (wire, request):
        request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=b""))
        nowhere = TopicProduceData(name="nowhere", partition_data=[PartitionProduceData(records=b"abc")])
        request.topic_data.append(nowhere)
        answers: list[ProduceResponse] = []

        async def produce() -> None:
            answers.append(await wire.produce(request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            assert (wire.memory.used, wire.buffers.kept) == (0, FrameBuffers.room_for(len(VALUE)))
            assert wire.world.hold is not None
            wire.world.hold.set()
        codes = [part.error_code for topic in answers[0].responses for part in topic.partition_responses]
        assert codes == [0, errors.InvalidRecordError.code, errors.UnknownTopicOrPartitionError.code]


async def test_produce_whose_records_are_not_in_the_log_yet_counts_towards_the_memory() -> None:
    """A thread checks its batch; the next request is read only after this one is appended."""
    async with wired(1) as (wire, request):
        noise = random.Random(1).randbytes(len(VALUE))
        request.topic_data[0].partition_data[0].records = batch(noise, compression="gzip")
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(wire.produce, request)
            await trio.testing.wait_all_tasks_blocked()
            assert (wire.memory.used > len(VALUE), wire.memory.waiting) == (True, 1)
            assert wire.world.hold is not None
            wire.world.hold.set()
        assert wire.memory.used == 0


async def test_large_requests_that_follow_each_other_are_decoded_once_and_share_a_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[object] = []
    learn = RepeatedRequests.learn

    def noted(repeated: RepeatedRequests, frame: Buffer, header: RequestHeader, request: ProduceRequest) -> None:
        decoded.append(request)
        learn(repeated, frame, header, request)

    monkeypatch.setattr(RepeatedRequests, "learn", noted)
    async with wired(1) as (wire, _):
        assert wire.world.hold is not None
        wire.world.hold.set()
        await wire.node.create("unhurried", 1)  # no answer waits for the disk
        answers = await wire.produce_often(wire.node.produce_request("unhurried", batch(VALUE), acks=1), 4)
        assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [0, 1, 2, 3]
        assert (len(decoded), wire.memory.used) == (1, 0)
        assert wire.buffers.kept == FrameBuffers.room_for(len(VALUE))
