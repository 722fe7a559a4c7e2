"""One connection, from frame to answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from tests.support.logged import lines
from tests.unit.broker_stub.network.streams import ScriptedStream
from triokafka import errors
from triokafka.broker_stub.authorization_audit import AuthorizationAudit
from triokafka.broker_stub.authorizer import Access, Authorizer
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.network.authentication import (
    Authenticated,
    Authentication,
    AuthenticationFailedError,
    NoAuthentication,
)
from triokafka.broker_stub.network.fair_scheduler import FairScheduler
from triokafka.broker_stub.network.framing import FrameBuffers
from triokafka.broker_stub.network.processor import BUSY, ConnectionProcessor, Shared
from triokafka.broker_stub.network.response_memory import ResponseMemory
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation, Purgatory
from triokafka.broker_stub.request.client_quotas import ClientQuotas
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.handler_slots import HandlerSlots
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler, handles
from triokafka.broker_stub.request.request_memory import RequestMemory
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import Buffer
from triokafka.world import Stream
from triokafka.world.system import RealWorld

PROCESSOR = "triokafka.broker_stub.network.processor"


class Parked(DelayedOperation):
    """Completes when the test lets it."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        """Nothing to do."""


class Bench:
    """A dispatcher whose Heartbeat handler calls ``behaviour``."""

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
        self.turns = FairScheduler()
        self.authentication = authentication or NoAuthentication()

        @handles(
            HeartbeatRequest,
            versions=range(0, 5),
            accesses=[Access(AclOperation.READ, ResourceType.GROUP, lambda r: [r.group_id], per_item=False)],
        )
        async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse | None:
            outcome = self.behaviour(request, context)
            if hasattr(outcome, "__await__"):
                outcome = await outcome
            return outcome if isinstance(outcome, HeartbeatResponse) else HeartbeatResponse()

        @handles(ApiVersionsRequest, versions=range(0, 5))
        async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
            return ApiVersionsResponse()

        @handles(FetchRequest, versions=range(4, 13))
        async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
            data = PartitionData(records=bytes(request.max_bytes))
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

        handlers: dict[int, Handler[Any, Any]] = {1: fetch, 12: heartbeat, 18: api_versions}
        services = SimpleNamespace(
            world=self.world,
            now=self.world.now,
            config=None,
            faults=Faults(),
            quotas=ClientQuotas(),
            authorizer=authorizer,
            allows_all=authorizer is None,
            audit=AuthorizationAudit(self.world.now),
            advertised={key: handler.advertised for key, handler in handlers.items()},
        )
        self.dispatcher = Dispatcher(cast(Any, services), handlers, self.memory)

    def processor(self, stream: ScriptedStream, start: Callable[[Any], None] | None = None) -> ConnectionProcessor:
        """A connection over ``stream``; with ``start`` it may send responses in a task of its own."""
        shared = Shared(
            self.dispatcher,
            self.slots,
            self.memory,
            ResponseMemory(),
            FrameBuffers(),
            self.turns,
            self.world,
            10_000,
            self.authentication,
            failed_authentication_delay_ms=100,
            follower_send_buffer_bytes=200_000,
            start=start,
        )
        return ConnectionProcessor(stream, connection_id="connection", listener="PLAINTEXT", shared=shared)

    async def exchange(self, *frames: bytes) -> ScriptedStream:
        """Send frames and close; return the stream with the responses."""
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
    bench = Bench()

    def fail(request: HeartbeatRequest, context: RequestContext) -> None:
        raise errors.UnknownMemberIdError("nobody of that name")

    bench.behaviour = fail
    stream = await bench.exchange(heartbeat_frame(1), heartbeat_frame(2))
    assert [decoded(frame)[1].error_code for frame in answers(stream)] == [25, 25]


async def test_defect_in_a_handler_is_an_unknown_server_error_and_the_connection_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    """Earlier requests are answered."""
    caplog.set_level(logging.INFO)
    stream = await Bench().exchange(heartbeat_frame(7), frame)
    assert [decoded(answer)[0] for answer in answers(stream)] == [7]
    assert stream.closed
    (line,) = lines(caplog, PROCESSOR)
    assert reason in line


async def test_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    """The client then repeats the request with a version from the answer."""
    request = bytearray(encoded(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 9, 4))
    request[6:8] = (99).to_bytes(2, "big")
    stream = await Bench().exchange(bytes(request), heartbeat_frame(10))
    first, second = answers(stream)
    number, response = decoded(first, 0, ApiVersionsResponse)
    assert (number, response.error_code) == (9, errors.UnsupportedVersionError.code)
    assert [(v.api_key, v.min_version, v.max_version) for v in response.api_keys] == [(18, 0, 4)]
    assert decoded(second)[0] == 10


async def test_handler_may_close_the_connection_instead_of_answering() -> None:
    """As a produce with acks=0 does when it fails."""
    bench = Bench()

    def refuse(request: HeartbeatRequest, context: RequestContext) -> None:
        raise CloseConnectionError("no other way to say so")

    bench.behaviour = refuse
    stream = await bench.exchange(heartbeat_frame(1), heartbeat_frame(2))
    assert stream.closed and not stream.sent


async def test_parked_request_holds_no_slot_and_others_continue() -> None:
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
    bench = Bench(slots=1)
    bench.behaviour = lambda request, context: trio.sleep_forever()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(ScriptedStream(heartbeat_frame(1))).run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert bench.slots.free == 1


class DenyAll(Authorizer):
    """Nobody may do anything."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return False


async def test_denied_request_is_refused_with_the_error_of_its_resource() -> None:
    """The handler does not run."""
    bench = Bench(authorizer=DenyAll())
    bench.behaviour = lambda request, context: pytest.fail("the handler ran")
    stream = await bench.exchange(heartbeat_frame(1))
    assert decoded(answers(stream)[0])[1].error_code == errors.GroupAuthorizationFailedError.code


async def test_client_over_its_quota_is_answered_first_and_read_again_later(autojump_clock: object) -> None:
    """The answer says for how long (KIP-219)."""
    bench = Bench()
    bench.behaviour = lambda request, context: setattr(context, "throttle_ms", 500)
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


async def test_requests_that_wait_for_a_slot_are_answered_before_the_broker_stops() -> None:
    """A request that was read is not dropped."""
    bench = Bench(slots=1)
    gate = trio.Event()
    bench.behaviour = lambda request, context: gate.wait()
    streams = [ScriptedStream(heartbeat_frame(number), end=False) for number in range(3)]
    processors = [bench.processor(stream) for stream in streams]
    async with trio.open_nursery() as nursery:
        for processor in processors:
            nursery.start_soon(processor.run)
        await trio.testing.wait_all_tasks_blocked()
        assert bench.slots.queued == 2
        for processor in processors:
            processor.finish()
        gate.set()
    assert [len(answers(stream)) for stream in streams] == [1, 1, 1]
    assert all(stream.closed for stream in streams)


class Doorkeeper(Authentication):
    """Authenticates a client by a password, names its principal, and replaces the stream for its requests."""

    async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
        word = bytearray(4)
        have = 0
        while have < 4:
            have += await stream.receive_into(memoryview(word)[have:])
        if word != b"open":
            raise AuthenticationFailedError(f"{bytes(word)!r} is not the word on {listener}")
        return Authenticated(Louder(stream), "User:friend")


class Louder(ScriptedStream):
    """A stream over a stream, as TLS is one."""

    def __init__(self, below: Stream) -> None:
        super().__init__()
        self._below = below

    async def send(self, *buffers: Buffer) -> None:
        await self._below.send(b"!", *buffers)

    async def receive_into(self, buffer: memoryview) -> int:
        return await self._below.receive_into(buffer)

    def close(self) -> None:
        self._below.close()


async def test_connection_authenticates_before_its_first_request() -> None:
    """Requests then come over the stream that the stage made, with the name that it found."""
    bench = Bench(authentication=Doorkeeper())
    seen: list[str] = []
    bench.behaviour = lambda request, context: seen.append(context.principal)
    stream = await bench.exchange(b"op", b"en", heartbeat_frame(1), heartbeat_frame(2))
    assert seen == ["User:friend", "User:friend"]
    assert bytes(stream.sent).startswith(b"!")
    assert stream.sent.count(b"!") == 2


async def test_failed_authentication_is_answered_late_and_serves_nothing(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """``connection.failed.authentication.delay.ms`` (KIP-306)."""
    bench = Bench(authentication=Doorkeeper())
    bench.behaviour = lambda request, context: pytest.fail("the handler ran")
    start = trio.current_time()
    stream = await bench.exchange(b"shut", heartbeat_frame(1))
    assert trio.current_time() - start == pytest.approx(0.1)
    assert stream.closed and not stream.sent
    assert lines(caplog, PROCESSOR) == ["closing connection: b'shut' is not the word on PLAINTEXT"]


async def test_connection_that_breaks_during_authentication_is_closed_with_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line in the log."""

    class Breaking(Authentication):
        async def authenticate(self, stream: Stream, listener: str) -> Authenticated:
            raise ConnectionResetError("gone")

    caplog.set_level(logging.DEBUG)
    stream = await Bench(authentication=Breaking()).exchange(heartbeat_frame(1))
    assert stream.closed
    assert "it broke: ConnectionResetError" in caplog.text


async def test_large_request_is_not_read_while_the_memory_for_requests_is_used_up(autojump_clock: object) -> None:
    """Small requests pass: their bytes have already arrived."""
    bench = Bench(memory=8000)
    gate = trio.Event()

    async def wait(request: HeartbeatRequest, context: RequestContext) -> None:
        if len(request.group_id) > 4096:
            await gate.wait()

    bench.behaviour = wait
    large = heartbeat_frame(1, "g" * 5000)
    first, second = ScriptedStream(large), ScriptedStream(large)
    async with trio.open_nursery() as nursery:
        for stream in (first, second):
            nursery.start_soon(bench.processor(stream).run)
        await trio.testing.wait_all_tasks_blocked()
        assert (bench.memory.waiting, bench.slots.free) == (1, 7)
        assert 5000 < bench.memory.used < 5100
        assert len(answers(await bench.exchange(heartbeat_frame(3)))) == 1
        gate.set()
    assert len(answers(first)) == len(answers(second)) == 1
    assert bench.memory.used == 0


async def test_memory_of_a_request_is_free_again_whatever_became_of_it() -> None:
    """It may be cut in the middle, cancelled, or failed."""
    bench = Bench(memory=8000)
    large = heartbeat_frame(1, "g" * 5000)
    await bench.exchange(large[:-100])
    assert bench.memory.used == 0
    bench.behaviour = lambda request, context: 1 // 0
    await bench.exchange(large)
    assert bench.memory.used == 0
    bench.behaviour = lambda request, context: trio.sleep_forever()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.processor(ScriptedStream(large)).run)
        await trio.testing.wait_all_tasks_blocked()
        assert bench.memory.used > 5000
        nursery.cancel_scope.cancel()
    assert bench.memory.used == 0


async def test_connection_that_is_not_read_because_of_others_is_not_idle() -> None:
    """The broker causes the wait, not the client."""
    bench = Bench(slots=1, max_queued=1)
    bench.behaviour = lambda request, context: trio.sleep_forever()
    streams = [ScriptedStream(heartbeat_frame(number), end=False) for number in range(3)]
    async with trio.open_nursery() as nursery:
        processors = [bench.processor(stream) for stream in streams]
        for processor in processors:
            nursery.start_soon(processor.run)
            await trio.testing.wait_all_tasks_blocked()
        assert bench.slots.queued == 1
        assert [processor.idle_since for processor in processors] == [BUSY] * 3
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([heartbeat_frame(1)], "the peer closed it"),
        ([], "the peer closed it"),
        ([b"GET / HTTP/1.1\r\n\r\n"], "GET / HT"),
        ([heartbeat_frame(1)[:3]], "the peer closed within a frame's size"),
    ],
)
async def test_every_end_of_a_connection_has_one_line_in_the_log(
    frames: list[bytes], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With its id and why."""
    caplog.set_level(logging.DEBUG)
    await Bench().exchange(*frames)
    (line,) = [record.getMessage() for record in caplog.records if "closing" in record.getMessage()]
    assert line.startswith("closing connection: ")
    assert reason in line


async def test_times_of_a_request_are_cut_into_phases_that_add_up(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Queue, local, remote, throttle; one line each in the log of requests."""
    caplog.set_level(logging.DEBUG, logger="triokafka.broker_stub.requests")
    bench = Bench(slots=1)
    purgatory = Purgatory("test", now_ms=0)

    async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
        await trio.sleep(0.2)
        return function(*args)

    bench.world.run_in_thread = run_in_thread  # type: ignore[method-assign]

    async def work(request: HeartbeatRequest, context: RequestContext) -> None:
        await context.in_thread(len, "")  # with the slot
        if request.group_id == "parked":
            operation = Parked(10_000)
            purgatory.try_complete_else_watch(operation, ["key"], 0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(context.park, operation)
                await trio.sleep(0.5)
                operation.force_complete()
            context.throttle_ms = 300

    bench.behaviour = work
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.exchange, heartbeat_frame(1, "parked"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(bench.exchange, heartbeat_frame(2, "queued"))
    found = bench.dispatcher.metrics.api("Heartbeat").summaries()
    assert {name: round(summary.total) for name, summary in found.items() if name.endswith("Ms")} == {
        "RequestQueueTimeMs": 200,
        "LocalTimeMs": 400,
        "RemoteTimeMs": 500,
        "ThrottleTimeMs": 300,
        "ResponseQueueTimeMs": 0,
        "ResponseSendTimeMs": 0,
        "TotalTimeMs": 1400,
    }
    lines = [record.getMessage() for record in caplog.records if record.name.endswith(".requests")]
    assert len(lines) == 2
    (parked,) = [line for line in lines if "correlation 1 " in line]
    for part in ("Heartbeat v4", "192.0.2.1:40000", "'test'", "remote 500.000", "throttle 300.000", "total 1000.000"):
        assert part in parked
    assert bench.dispatcher.metrics.api("Heartbeat").errors == {0: 2}
    assert bench.dispatcher.metrics.api("Heartbeat").by_version == {4: 2}


async def test_answer_that_could_not_be_sent_is_counted_nevertheless() -> None:
    """The work was done."""

    class Deaf(ScriptedStream):
        async def send(self, *buffers: Buffer) -> None:
            raise BrokenPipeError

    bench = Bench()
    await bench.processor(Deaf(heartbeat_frame(1))).run()
    assert bench.dispatcher.metrics.count == 1


class Waiting(ScriptedStream):
    """Reports for every piece that it had to wait, or for none."""

    def __init__(self, *pieces: bytes, waits: bool, end: bool = True) -> None:
        super().__init__(*pieces, end=end)
        self._says_so = waits

    async def receive_into(self, buffer: memoryview) -> int:
        self.waits += self._says_so
        return await super().receive_into(buffer)


@pytest.mark.parametrize(
    ("waits", "pipelined", "turns"),
    [(False, 1, 4), (False, 20, 4), (True, 1, 0), (True, 4, 4), (True, 5, 7), (True, 20, 4)],
)
async def test_other_tasks_run_after_four_requests_without_waiting(
    waits: bool, pipelined: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipelining client must not monopolize the broker; a client that waits for each response is not delayed."""
    taken: list[int] = []
    bench = Bench()

    async def checkpoint() -> None:
        taken.append(len(taken))

    frames = [heartbeat_frame(number) for number in range(20)]
    pieces = [b"".join(frames[at : at + pipelined]) for at in range(0, 20, pipelined)]
    stream = Waiting(*pieces, waits=waits)
    monkeypatch.setattr(f"{PROCESSOR}._LONG_SECONDS", 60)
    monkeypatch.setattr("trio.lowlevel.checkpoint", checkpoint)
    await bench.processor(stream).run()
    assert [decoded(frame)[0] for frame in answers(stream)] == list(range(20))
    assert len(taken) == turns


async def test_new_request_waits_for_only_one_pipelining_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each iteration of the event loop one of them handles four requests; they take turns."""
    bench = Bench()
    order: list[str] = []
    calm = Waiting(waits=True, end=False)

    def served(request: HeartbeatRequest, context: RequestContext) -> None:
        order.append(request.group_id)
        if len(order) == 60:
            calm.feed(heartbeat_frame(group="calm"))

    bench.behaviour = served
    monkeypatch.setattr(f"{PROCESSOR}._LONG_SECONDS", 60)
    async with trio.open_nursery() as nursery:
        for name in range(10):
            stream = ScriptedStream(b"".join(heartbeat_frame(number, f"{name}") for number in range(20)))
            nursery.start_soon(bench.processor(stream).run)
        nursery.start_soon(bench.processor(calm).run)
        await trio.testing.wait_all_tasks_blocked()
        calm.hang_up()
    assert order.index("calm") <= 60 + 4
    order.remove("calm")
    rounds = [order[at : at + 40 : 4] for at in range(0, 200, 40)]
    assert all(len(set(of_each)) == 10 for of_each in rounds)
    assert rounds[1:] == rounds[1:2] * 4, "no client is overtaken"


@pytest.mark.parametrize(("replica_id", "widened"), [(-1, []), (2, [200_000])])
async def test_kernel_takes_more_bytes_for_a_follower_that_receives_many_records(
    replica_id: int, widened: list[int]
) -> None:
    """Clients do not get that memory, and a follower without records does not need it."""
    bench = Bench()
    small, large = (
        encoded(FetchRequest(replica_id=replica_id, max_bytes=size), number, 12)
        for number, size in enumerate((1_000, 100_000))
    )
    assert not (await bench.exchange(small)).send_buffers
    assert (await bench.exchange(small, large, large)).send_buffers == widened
