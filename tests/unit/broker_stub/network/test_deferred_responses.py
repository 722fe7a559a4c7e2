"""Produce requests of one connection that wait for replicas at the same time."""

from __future__ import annotations

from typing import Any, cast

import trio
import trio.testing

from tests.unit.broker_stub.network.streams import ScriptedStream
from tests.unit.broker_stub.network.test_processor import Bench, Parked, answers, decoded, encoded, heartbeat_frame
from triokafka.broker_stub.network.processor import ConnectionProcessor
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

VERSION = 9


def produce_frame(number: int) -> bytes:
    """A Produce request."""
    partition = PartitionProduceData(index=0, records=b"records %d" % number)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return encoded(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic]), number, VERSION)


class Replicated:
    """A connection whose Produce requests wait for operations that the test completes."""

    def __init__(self, nursery: trio.Nursery, *frames: bytes) -> None:
        self.operations: list[Parked] = []
        self.heartbeats = 0
        bench = Bench()
        bench.behaviour = self._count

        @handles(ProduceRequest, versions=range(3, 14))
        async def produce(request: ProduceRequest, context: RequestContext) -> DeferredResponse:
            operation = Parked(1_000)
            self.operations.append(operation)
            return DeferredResponse(operation, ProduceResponse)

        cast(Any, bench.dispatcher.handlers)[0] = produce
        self.stream = ScriptedStream(*frames, end=False)
        self.connection: ConnectionProcessor = bench.processor(self.stream, nursery.start_soon)
        nursery.start_soon(self.connection.run)

    def _count(self, request: object, context: object) -> None:
        self.heartbeats += 1

    async def commit(self, number: int) -> None:
        """The replicas have the records of a request."""
        self.operations[number].force_complete()
        await trio.testing.wait_all_tasks_blocked()

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the responses, in order."""
        return [int.from_bytes(frame[:4], "big") for frame in answers(self.stream)]


async def test_requests_wait_for_replicas_together_and_are_answered_in_their_order() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, *(produce_frame(number) for number in range(1, 4)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(rig.operations) == 3
        await rig.commit(2)
        assert rig.answered == []
        await rig.commit(0)
        assert rig.answered == [1]
        await rig.commit(1)
        assert rig.answered == [1, 2, 3]
        rig.stream.hang_up()
    assert rig.stream.closed


async def test_no_more_than_five_requests_wait() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, *(produce_frame(number) for number in range(1, 8)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(rig.operations) == 5
        await rig.commit(0)
        assert len(rig.operations) == 6
        for number in range(1, 6):
            await rig.commit(number)
        await rig.commit(6)
        assert rig.answered == [1, 2, 3, 4, 5, 6, 7]
        rig.stream.hang_up()


async def test_another_request_waits_for_the_responses_before_it() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, produce_frame(1), heartbeat_frame(2), produce_frame(3))
        await trio.testing.wait_all_tasks_blocked()
        assert rig.heartbeats == 0
        await rig.commit(0)
        assert rig.heartbeats == 1
        assert rig.answered == [1, 2]
        assert decoded(answers(rig.stream)[1])[0] == 2
        await rig.commit(1)
        assert rig.answered == [1, 2, 3]
        rig.stream.hang_up()


async def test_peer_that_closes_its_side_gets_the_responses() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, produce_frame(1), produce_frame(2))
        rig.stream.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.stream.closed
        await rig.commit(0)
        await rig.commit(1)
    assert rig.answered == [1, 2]
    assert rig.stream.closed


async def test_bad_request_closes_the_connection_after_the_responses_before_it() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, produce_frame(1), b"\0\0\0\x02\0\0")
        await trio.testing.wait_all_tasks_blocked()
        await rig.commit(0)
    assert rig.answered == [1]
    assert rig.stream.closed


async def test_connection_that_finishes_sends_the_responses_first() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, produce_frame(1), produce_frame(2))
        await trio.testing.wait_all_tasks_blocked()
        rig.connection.finish()
        assert not rig.stream.closed
        await rig.commit(0)
        await rig.commit(1)
    assert rig.answered == [1, 2]
    assert rig.stream.closed


async def test_connection_that_breaks_ends_its_sender() -> None:
    async with trio.open_nursery() as nursery:
        rig = Replicated(nursery, produce_frame(1))
        await trio.testing.wait_all_tasks_blocked()
        rig.connection.close("the program closed it")
    assert rig.answered == []
