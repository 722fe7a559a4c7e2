"""Claims about one connection, from frame to answer (`broker-log/A`, `B`)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tests.unit.broker_stub.network.streams import ScriptedStream
from triokafka import errors
from triokafka.broker_stub.authorizer import Access, Authorizer, Operation, ResourceType
from triokafka.broker_stub.dispatcher import Dispatcher
from triokafka.broker_stub.faults import Faults
from triokafka.broker_stub.handlers import CloseConnectionError, Handler, RequestContext, handles
from triokafka.broker_stub.network.authentication import (
    Authentication,
    NoAuthentication,
)
from triokafka.broker_stub.network.framing import FrameBuffers
from triokafka.broker_stub.network.handler_slots import HandlerSlots
from triokafka.broker_stub.network.processor import BUSY, ConnectionProcessor, Shared
from triokafka.broker_stub.network.request_memory import RequestMemory
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation, Purgatory
from triokafka.broker_stub.quotas import ClientQuotas
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.world import RealWorld


class Parked(DelayedOperation):
    """Completes when it is told to."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        """Nothing to do."""


class Bench:
    """A dispatcher with a Heartbeat handler that does what ``behaviour`` says."""

    def __init__(
        self,
        slots: int = 8,
        authorizer: Authorizer | None = None,
        *,
        max_queued: int = 500,
        memory: int = -1,
        authentication: Authentication | None = None,
    ) -> None:
        self.behaviour: Callable[[HeartbeatRequest, RequestContext], Any] = lambda request, context: None
        self.world = RealWorld()
        self.slots = HandlerSlots(slots, max_queued=max_queued)
        self.memory = RequestMemory(memory)
        self.authentication = authentication or NoAuthentication()

        @handles(
            HeartbeatRequest,
            versions=range(0, 5),
            accesses=[Access(Operation.READ, ResourceType.GROUP, lambda r: [r.group_id], per_item=False)],
        )
        async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse | None:
            outcome = self.behaviour(request, context)
            if hasattr(outcome, "__await__"):
                outcome = await outcome
            return outcome if isinstance(outcome, HeartbeatResponse) else HeartbeatResponse()

        @handles(ApiVersionsRequest, versions=range(0, 5))
        async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
            return ApiVersionsResponse()

        handlers: dict[int, Handler[Any, Any]] = {12: heartbeat, 18: api_versions}
        broker = SimpleNamespace(world=self.world, faults=Faults(), quotas=ClientQuotas())
        self.dispatcher = broker.dispatcher = Dispatcher(cast(Any, broker), handlers, authorizer=authorizer)

    def processor(self, stream: ScriptedStream) -> ConnectionProcessor:
        """A connection over ``stream``."""
        shared = Shared(
            self.dispatcher,
            self.slots,
            self.memory,
            FrameBuffers(),
            self.world,
            10_000,
            self.authentication,
            failed_authentication_delay_ms=100,
        )
        return ConnectionProcessor(stream, connection_id="connection", listener="PLAINTEXT", shared=shared)

    async def exchange(self, *frames: bytes) -> ScriptedStream:
        """Send frames and close; returns the stream with what was answered."""
        stream = ScriptedStream(*frames)
        await self.processor(stream).run()
        return stream


def heartbeat_frame(number: int = 1, group: str = "g", version: int = 4) -> bytes:
    """A Heartbeat request."""
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    return encoded(request, number, version)


def encoded(request: Request[Any], number: int, version: int) -> bytes:
    """A framed request."""
    return b"".join(encode_request(request, version=version, correlation_id=number, client_id="test"))


def answers(stream: ScriptedStream) -> list[bytes]:
    """The frames that were sent back."""
    frames, rest = [], bytes(stream.sent)
    while rest:
        size = int.from_bytes(rest[:4], "big")
        frames.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return frames


def decoded(frame: bytes, version: int = 4, response_type: type[Response] = HeartbeatResponse) -> tuple[int, Any]:
    """Correlation id and message of an answer."""
    return decode_response(response_type, frame, version=version)


async def test_pipelined_requests_are_answered_one_by_one_in_their_order() -> None:
    """(`broker-log/A23`)."""
    bench = Bench()
    running = 0

    async def slow(request: HeartbeatRequest, context: RequestContext) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(10 - context.header.correlation_id):
            await trio.lowlevel.checkpoint()
        running -= 1

    bench.behaviour = slow
    stream = await bench.exchange(b"".join(heartbeat_frame(number) for number in range(1, 6)))
    assert [decoded(frame)[0] for frame in answers(stream)] == [1, 2, 3, 4, 5]
    assert stream.closed


async def test_error_in_a_handler_becomes_the_apis_own_error_response() -> None:
    """(`broker-log/B06`)."""
    bench = Bench()

    def fail(request: HeartbeatRequest, context: RequestContext) -> None:
        raise errors.UnknownMemberIdError("nobody of that name")

    bench.behaviour = fail
    stream = await bench.exchange(heartbeat_frame(1), heartbeat_frame(2))
    assert [decoded(frame)[1].error_code for frame in answers(stream)] == [25, 25]


async def test_defect_in_a_handler_is_an_unknown_server_error_and_the_connection_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """(`broker-log/B01`)."""
    bench = Bench()
    bench.behaviour = lambda request, context: 1 // 0
    stream = await bench.exchange(heartbeat_frame(1), heartbeat_frame(2))
    assert [decoded(frame)[1].error_code for frame in answers(stream)] == [-1, -1]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(b"\0\0\0\x02\0\x0c", "not a Kafka request", id="truncated header"),
        pytest.param(encoded(HeartbeatRequest(), 1, 4)[:-4], "the peer closed", id="truncated frame"),
        pytest.param(b"\0\0\0\x0a" + b"\0\x0c\0\0" + b"\0\0\0\x01" + b"\xff\xff", "ends early", id="no body"),
        pytest.param(b"\0\0\0\x0a" + b"\x03\xe8\0\0" + b"\0\0\0\x01" + b"\xff\xff", "1000", id="unknown API"),
        pytest.param(b"\0\0\0\x0b" + b"\0\x0c\0\x63" + b"\0\0\0\x01" + b"\xff\xff\0", "version 99", id="version"),
        pytest.param(b"\x7f\xff\xff\xff", "socket.request.max.bytes", id="too large"),
    ],
)
async def test_malformed_request_closes_its_connection_with_one_line_in_the_log(
    frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was asked before it is answered (`broker-log/A22`, `A31`, `A36`)."""
    caplog.set_level(logging.INFO)
    stream = await Bench().exchange(heartbeat_frame(7), frame)
    assert [decoded(answer)[0] for answer in answers(stream)] == [7]
    assert stream.closed
    assert len(caplog.records) == 1
    assert reason in caplog.text


async def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    """The client then asks again with a version that it is told (`broker-log/A31`, `Z23`)."""
    request = bytearray(encoded(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 9, 4))
    request[6:8] = (99).to_bytes(2, "big")
    stream = await Bench().exchange(bytes(request), heartbeat_frame(10))
    first, second = answers(stream)
    number, response = decoded(first, 0, ApiVersionsResponse)
    assert (number, response.error_code) == (9, errors.UnsupportedVersionError.code)
    assert [(v.api_key, v.min_version, v.max_version) for v in response.api_keys] == [(18, 0, 4)]
    assert decoded(second)[0] == 10


async def test_handler_may_close_the_connection_instead_of_answering() -> None:
    """As a produce with acks=0 does when it fails (`broker-log/A33`)."""
    bench = Bench()

    def refuse(request: HeartbeatRequest, context: RequestContext) -> None:
        raise CloseConnectionError("no other way to say so")

    bench.behaviour = refuse
    stream = await bench.exchange(heartbeat_frame(1), heartbeat_frame(2))
    assert stream.closed and not stream.sent


async def test_parked_request_holds_no_slot_and_others_go_on() -> None:
    """(`broker-log/B07`)."""
    bench = Bench(slots=1)
    purgatory = Purgatory("test", now_ms=0)
    operation = Parked(10_000)
    purgatory.try_complete_else_watch(operation, ["key"], 0)

    async def park(request: HeartbeatRequest, context: RequestContext) -> None:
        if request.group_id == "parked":
            await context.park(operation)

    bench.behaviour = park
    first, second = ScriptedStream(heartbeat_frame(1, "parked")), ScriptedStream(heartbeat_frame(2, "other"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(first).run)
        await trio.testing.wait_all_tasks_blocked()
        await bench.processor(second).run()
        assert [decoded(frame)[0] for frame in answers(second)] == [2]
        assert not first.sent
        operation.force_complete()
    assert [decoded(frame)[0] for frame in answers(first)] == [1]
    assert bench.slots.free == 1


async def test_request_without_a_free_slot_waits_and_its_connection_is_not_read() -> None:
    """(`broker-log/A29`)."""
    bench = Bench(slots=1)
    gate = trio.Event()

    async def wait(request: HeartbeatRequest, context: RequestContext) -> None:
        await gate.wait()

    bench.behaviour = wait
    first, second = ScriptedStream(heartbeat_frame(1)), ScriptedStream(heartbeat_frame(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(first).run)
        nursery.start_soon(bench.processor(second).run)
        await trio.testing.wait_all_tasks_blocked()
        assert (bench.slots.free, bench.slots.queued) == (0, 1)
        gate.set()
    assert len(answers(first)) == len(answers(second)) == 1
    assert bench.slots.free == 1


async def test_cancelled_connection_gives_its_slot_back() -> None:
    """(`broker-log/T`)."""
    bench = Bench(slots=1)
    bench.behaviour = lambda request, context: trio.sleep_forever()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(ScriptedStream(heartbeat_frame(1))).run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert bench.slots.free == 1


class DenyAll(Authorizer):
    """Nobody may do anything."""

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return False


async def test_denied_request_is_refused_with_the_error_of_its_resource() -> None:
    """The handler does not run (`broker-log/B08`)."""
    bench = Bench(authorizer=DenyAll())
    bench.behaviour = lambda request, context: pytest.fail("the handler ran")
    stream = await bench.exchange(heartbeat_frame(1))
    assert decoded(answers(stream)[0])[1].error_code == errors.GroupAuthorizationFailedError.code


class HoldBack:
    """Every client is to be held back for half a second."""

    def throttle_time_ms(self, context: RequestContext, response: Response) -> int:
        return 500


async def test_client_over_its_quota_is_answered_first_and_read_again_later(autojump_clock: object) -> None:
    """The answer says for how long (`broker-log/Z20`, KIP-219)."""
    bench = Bench()
    bench.dispatcher.quota = HoldBack()
    stream = ScriptedStream(heartbeat_frame(1), heartbeat_frame(2), end=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(stream).run)
        await trio.sleep(0.1)
        (first,) = answers(stream)
        assert decoded(first)[1].throttle_time_ms == 500
        await trio.sleep(0.6)
        assert len(answers(stream)) == 2
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(processor: ConnectionProcessor) -> AsyncIterator[None]:
    """A connection being served."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(processor.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_connection_is_idle_between_requests_and_not_while_one_is_in_progress() -> None:
    """(`broker-log/A35`)."""
    bench = Bench()
    gate = trio.Event()
    bench.behaviour = lambda request, context: gate.wait()
    stream = ScriptedStream(heartbeat_frame(1), end=False)
    processor = bench.processor(stream)
    async with running(processor):
        assert processor.idle_since == BUSY
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert processor.idle_since <= bench.world.now()


async def test_finishing_a_connection_answers_the_request_in_progress_first() -> None:
    """A graceful stop cuts idle connections only."""
    bench = Bench()
    gate = trio.Event()
    bench.behaviour = lambda request, context: gate.wait()
    busy, idle = ScriptedStream(heartbeat_frame(1), end=False), ScriptedStream(end=False)
    processors = [bench.processor(busy), bench.processor(idle)]
    async with trio.open_nursery() as nursery:
        for processor in processors:
            nursery.start_soon(processor.run)
        await trio.testing.wait_all_tasks_blocked()
        for processor in processors:
            processor.finish()
        assert idle.closed and not busy.closed
        gate.set()
    assert len(answers(busy)) == 1
    assert busy.closed
