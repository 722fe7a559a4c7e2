"""A broker in memory and a client without sockets: frames go straight to the dispatcher, in any version."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import trio
from trio.testing import MockClock

from triokafka.broker_stub import node as node_role
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.config import BrokerConfig
from triokafka.protocol.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from triokafka.protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.records import encode_batch
from triokafka.world import World
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

T = TypeVar("T")
R = TypeVar("R", bound=Response)
NOW_MS = 1_700_000_000_000


class _MemoryWorld(RealWorld):
    """The real world, with its files in memory; while a thread worked, a virtual clock would run ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage(crashable=False)

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if not isinstance(trio.lowlevel.current_clock(), MockClock):
            return await super().run_in_thread(function, *args)
        await trio.lowlevel.checkpoint()
        return function(*args)


def memory_world() -> World:
    """The real world, with its files in memory, and no threads where time is virtual."""
    return _MemoryWorld()


def batch(*values: bytes, timestamp: int = NOW_MS, **options: Any) -> bytes:
    """A record batch with these values, each a millisecond after the one before."""
    return bytes(encode_batch([(timestamp + i, None, value, ()) for i, value in enumerate(values)], **options))


def marker(producer_id: int, *, commit: bool) -> bytes:
    """The batch with which a coordinator ends a transaction of a producer's epoch 0."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 1)
    return bytes(
        encode_batch(
            [(NOW_MS, key, value, ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=-1,
            transactional=True,
            control=True,
        )
    )


class Node:
    """The broker and the way to talk to it."""

    def __init__(self, process: node_role.Node) -> None:
        self.process = process
        self.broker = process.broker

    async def call(self, request: Request[R], version: int, *, listener: str = "PLAINTEXT") -> R:
        """Send one request and read the answer, both through their encoding."""
        answer = await self.send(request, version, listener=listener)
        frame = b"".join(answer)
        size = int.from_bytes(frame[:4], "big")
        assert size == len(frame) - 4
        number, response = decode_response(request.response_type, frame[4:], version=version)
        assert number == 77
        return response

    async def send(
        self,
        request: Request[Any],
        version: int,
        *,
        listener: str = "PLAINTEXT",
        repeated: RepeatedRequests | None = None,
    ) -> list[Any]:
        """Send one request; returns the parts of the answer, none when there is none."""
        frame = b"".join(encode_request(request, version=version, correlation_id=77, client_id="test"))
        return await self.send_frame(frame, listener=listener, repeated=repeated)

    async def send_frame(
        self, frame: bytes, *, listener: str = "PLAINTEXT", repeated: RepeatedRequests | None = None
    ) -> list[Any]:
        """`send` for a request that is encoded already, its size in front."""
        slot = await self.broker.sockets.slots.acquire()
        try:
            answer = await self.broker.dispatcher.dispatch(
                bytearray(frame[4:]),
                slot=slot,
                principal="User:test",
                listener=listener,
                peer=("192.0.2.1", 5),
                repeated=repeated,
            )
        finally:
            slot.release()
            if repeated is not None:
                repeated.done()
        now = self.broker.world.now()
        self.broker.dispatcher.answered(answer, now, now)
        return cast("list[Any]", answer.parts)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; configuration keys have underscores for dots."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        response = await self.broker.gateway.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        assert [topic.error_code for topic in response.topics] == [0]

    async def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        """Produce one batch to one partition."""
        request = self.produce_request(topic, records, partition=partition, acks=acks, version=version)
        request.transactional_id = transactional_id
        response = await self.call(request, version)
        return response.responses[0].partition_responses[0]

    def produce_request(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9
    ) -> ProduceRequest:
        """A request with one batch."""
        data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
        if version >= 13:
            data.topic_id = self.broker.image.topics[topic].topic_id
        else:
            data.name = topic
        return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])

    def fetch_request(
        self,
        topic: str,
        offsets: Sequence[int],
        *,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 10_000_000,
        partition_max_bytes: int = 1_000_000,
        **fields: Any,
    ) -> FetchRequest:
        """A request for partitions 0, 1, … at these offsets."""
        asked = FetchTopic(
            partitions=[
                FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                for number, offset in enumerate(offsets)
            ]
        )
        if version >= 13:
            asked.topic_id = self.broker.image.topics[topic].topic_id
        else:
            asked.topic = topic
        return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[asked], **fields)

    async def fetch(self, topic: str, *offsets: int, version: int = 11, **fields: Any) -> list[PartitionData]:
        """Fetch partitions 0, 1, … of one topic."""
        response = await self.call(self.fetch_request(topic, offsets, version=version, **fields), version)
        assert response.error_code == 0
        return [partition for topic_response in response.responses for partition in topic_response.partitions]


@asynccontextmanager
async def running_node(
    *, world: World | None = None, authorizer: Authorizer | None = None, **options: Any
) -> AsyncIterator[Node]:
    """A running broker with `BrokerConfig` ``options``."""
    config = BrokerConfig.for_tests(**{"log_dirs": ("/data",), **options})
    world = memory_world() if world is None else world
    async with node_role.Node(config, world=world, authorizer=authorizer) as process:
        yield Node(process)
