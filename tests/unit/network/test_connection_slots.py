"""The order of requests on a connection: free slots, the queue of waiters, throttling, and partial writes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import SILENCE, ScriptedBroker
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_connection import ASK, connected
from triokafka.errors import KafkaConnectionError
from triokafka.network.connection import Connection
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.api.produce import ProduceRequest


def ignore(response: object, error: object) -> None:
    pass


class Gate:
    """Responses of a broker that the test releases one by one."""

    def __init__(self, broker: ScriptedBroker, count: int) -> None:
        self._events = [trio.Event() for _ in range(count)]
        self._next = 0
        self._broker = broker
        broker.script(MetadataRequest, *(self._answer for _ in range(count)))

    async def _answer(self, request: MetadataRequest) -> MetadataResponse:
        number, self._next = self._next, self._next + 1
        await self._events[number].wait()
        return self._broker.metadata(request)

    def open(self, number: int) -> None:
        self._events[number].set()


@simulated
async def test_waiters_for_a_slot_are_served_in_order_of_arrival() -> None:
    """A new request queues behind a waiter, even if it finds the free slot for which the other waits."""
    async with connected(max_in_flight=1) as (broker, connection):
        gate = Gate(broker, 5)
        order: list[int] = []

        async def ask(number: int) -> None:
            await connection.wait_for_slot()
            order.append(number)
            connection.submit(ASK, 9, ignore)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(ask, number)
                await trio.testing.wait_all_tasks_blocked()
            assert order == [0]
            for number in range(3):
                await broker.wait_for(MetadataRequest, number + 1)
                gate.open(number)
                while len(order) < number + 2:
                    assert not connection.can_send
                    await trio.sleep(0.0001)
            gate.open(3)
            gate.open(4)
        assert order == [0, 1, 2, 3]


@simulated
async def test_slot_of_a_cancelled_waiter_goes_to_the_next_one() -> None:
    """The waiter is cancelled before it gets the slot, or at the same moment."""
    async with connected(max_in_flight=1) as (broker, connection):
        gate = Gate(broker, 2)
        connection.submit(ASK, 9, ignore)
        scope = trio.CancelScope()
        served: list[str] = []

        async def give_up() -> None:
            with scope:
                await connection.wait_for_slot()
                await trio.sleep_forever()  # it has got the slot, and is cancelled before it uses it

        async def ask() -> None:
            await connection.wait_for_slot()
            served.append("asked")
            connection.submit(ASK, 9, ignore)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            gate.open(0)
            while connection.in_flight:
                await trio.sleep(0.0001)
            scope.cancel()
            with trio.fail_after(1):
                while not served:
                    await trio.sleep(0.001)
            gate.open(1)


@simulated
async def test_call_cancelled_at_any_checkpoint_leaves_the_connection_to_others() -> None:
    async with connected(max_in_flight=2) as (_, connection):

        async def check() -> None:
            assert isinstance(await connection.call(ASK, 9), MetadataResponse)
            assert connection.can_send
            assert connection.in_flight == 0

        _, cancelled = await cancelled_at_each_checkpoint(lambda: connection.call(ASK, 9), check)
        assert cancelled >= 1


@simulated
async def test_ended_connection_wakes_all_waiters() -> None:
    async with connected(max_in_flight=1) as (broker, connection):
        broker.script(MetadataRequest, SILENCE)
        connection.submit(ASK, 9, ignore)
        failed: list[str] = []

        async def ask() -> None:
            with pytest.raises(KafkaConnectionError, match="has ended: cut"):
                await connection.call(ASK, 9)
            failed.append("one")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            connection.close(KafkaConnectionError("cut"))
        assert failed == ["one"] * 3


@simulated
async def test_throttled_client_sends_nothing_until_the_time_is_over() -> None:
    """KIP-219."""
    async with connected() as (_, connection):
        connection.throttled_until = connection._world.now() + 3
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(connection.call, ASK, 9)
            await trio.testing.wait_all_tasks_blocked()
            assert not connection.can_send  # there is a free slot, but others were waiting first
        assert connection.can_send
        assert 3 <= trio.current_time() - started < 3.1


@pytest.mark.parametrize(("version", "muted"), [(5, False), (6, True)])
@simulated
async def test_response_that_the_broker_delayed_itself_does_not_throttle_the_client(version: int, muted: bool) -> None:
    """Before KIP-219 the broker delayed the response itself, and throttling the client would count twice."""
    async with connected() as (broker, connection):

        def throttling(request: MetadataRequest) -> MetadataResponse:
            response = broker.metadata(request)
            response.throttle_time_ms = 3000
            return response

        broker.script(MetadataRequest, throttling)
        await connection.call(ASK, version)
        assert (connection.throttled_until > connection._world.now() + 2.9) is muted


class Stuck:
    """A stream that accepts a limited number of bytes."""

    def __init__(self, connection: Connection, room: int) -> None:
        self.room = room
        self.tries = 0
        self.sent = bytearray()
        self._inner: Any = connection._stream
        self._opened = trio.Event()
        connection._stream = connection._writer._stream = self  # type: ignore[assignment]

    def open(self) -> None:
        self._opened.set()

    def try_send(self, *buffers: bytes) -> int:
        self.tries += 1
        data = b"".join(buffers)[: self.room]
        self.room -= len(data)
        self.sent += data
        return self._inner.try_send(data) if data else 0

    async def send(self, *buffers: bytes) -> None:
        await self._opened.wait()
        self.sent += b"".join(buffers)
        await self._inner.send(*buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("room", [0, 3, 20])
@simulated
async def test_bytes_that_the_socket_refuses_follow_in_order(room: int) -> None:
    async with connected(max_in_flight=5) as (broker, connection):
        stuck = Stuck(connection, room)
        answers: list[Any] = []
        for _ in range(3):
            connection.submit(ASK, 9, lambda response, error: answers.append(response))
        stuck.open()
        await broker.wait_for(MetadataRequest, 3)
        await trio.sleep(1)
        assert [type(answer) for answer in answers] == [MetadataResponse] * 3
        assert [header.correlation_id for header in broker.headers] == [0, 1, 2]
        assert connection.bytes_sent == len(stuck.sent)


@simulated
async def test_peer_that_does_not_read_gets_no_further_requests() -> None:
    """It gets none until the last one is written; then the owner is notified."""
    events: list[str] = []
    async with connected(max_in_flight=5, on_room=lambda: events.append("room")) as (broker, connection):
        stuck = Stuck(connection, 10)
        connection.submit(ASK, 9, ignore)
        assert connection.in_flight == 1
        assert not connection.can_send
        await trio.testing.wait_all_tasks_blocked()
        assert events == []
        stuck.open()
        await broker.wait_for(MetadataRequest)
        await trio.sleep(1)
        assert events == ["room"]
        assert connection.can_send


@simulated
async def test_owner_is_notified_once_when_there_is_room_again() -> None:
    seen: list[int] = []
    async with connected(max_in_flight=2, on_room=lambda: seen.append(connection.in_flight)) as (broker, connection):  # type: ignore[has-type]
        for _ in range(3):
            await connection.call(ASK, 9)
        assert seen == []  # there was room all the time
        connection.submit(ASK, 9, ignore)
        connection.submit(ASK, 9, ignore)
        await broker.wait_for(MetadataRequest, 5)
        await trio.sleep(1)
        assert seen == [1]


@simulated
async def test_request_without_a_response_never_completes_before_submit_returns() -> None:
    async with connected(max_in_flight=5) as (broker, connection):
        done: list[int] = []
        for number in range(3):
            request = ProduceRequest(acks=0, timeout_ms=1)
            connection.submit(request, 9, lambda *_, n=number: done.append(n), expect_response=False)
        assert done == []
        assert connection.in_flight == 3
        await broker.wait_for(ProduceRequest, 3)
        await trio.sleep(0)
        assert done == [0, 1, 2]


@simulated
async def test_requests_with_and_without_answer_fail_newest_first_together() -> None:
    """It does not matter whether they are already written."""
    async with connected(max_in_flight=5) as (_, connection):
        Stuck(connection, 0)
        failed: list[int] = []
        for number, answered in enumerate((True, False, True, False)):
            request = ASK if answered else ProduceRequest(acks=0, timeout_ms=1)
            connection.submit(request, 9, lambda *_, n=number: failed.append(n), expect_response=answered)
        connection.close(KafkaConnectionError("cut"))
        assert failed == [3, 2, 1, 0]


@simulated
async def test_broken_stream_fails_the_writer_and_not_the_submitter() -> None:
    async with connected() as (_, connection):
        simulation = current_simulation()
        await connection.call(ASK, 9)
        simulation.network.cut("client")
        failed: list[Any] = []
        connection.submit(ASK, 9, lambda response, error: failed.append(error))
        assert failed == []
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(failed[0], KafkaConnectionError)


@pytest.mark.parametrize("room", [0, 100, 10_000])
@simulated
async def test_held_requests_are_written_together_and_in_order(room: int) -> None:
    """The order holds however many bytes the socket accepts at once."""
    async with connected(max_in_flight=5) as (broker, connection):
        stuck = Stuck(connection, room)
        answers: list[Any] = []
        connection.hold()
        for _ in range(3):
            connection.submit(ASK, 9, lambda response, error: answers.append(response))
        assert stuck.tries == 0
        assert connection.in_flight == 3
        assert connection.can_send
        connection.let_go()
        assert stuck.tries == 1
        stuck.open()
        await broker.wait_for(MetadataRequest, 3)
        await trio.sleep(1)
        assert [type(answer) for answer in answers] == [MetadataResponse] * 3
        assert [header.correlation_id for header in broker.headers] == [0, 1, 2]
        assert connection.bytes_sent == len(stuck.sent)


@simulated
async def test_request_without_a_response_is_not_held_and_does_not_overtake_held_ones() -> None:
    async with connected(max_in_flight=5) as (broker, connection):
        stuck = Stuck(connection, 10_000)
        connection.hold()
        connection.submit(ASK, 9, ignore)
        connection.submit(ProduceRequest(acks=0), 9, ignore, expect_response=False)
        assert stuck.tries == 2
        connection.let_go()
        assert stuck.tries == 2
        await broker.wait_for(MetadataRequest)
        await trio.sleep(1)
        assert [header.correlation_id for header in broker.headers] == [0, 1]


@simulated
async def test_held_requests_fail_when_the_connection_ends() -> None:
    async with connected(max_in_flight=5) as (_, connection):
        stuck = Stuck(connection, 10_000)
        failed: list[Any] = []
        connection.hold()
        connection.submit(ASK, 9, lambda response, error: failed.append(error))
        connection.close(KafkaConnectionError("cut"))
        connection.let_go()
        assert stuck.tries == 0
        assert [str(error) for error in failed] == ["cut"]


@simulated
async def test_callback_after_responses_runs_once_for_responses_received_together() -> None:
    """The callback runs before other tasks, and before the owner is notified of free slots, which the callback may use
    up.
    """
    events: list[str] = []
    async with connected(max_in_flight=2, on_room=lambda: events.append("room")) as (broker, connection):
        await connection.call(ASK, 9)
        go = trio.Event()
        receive_into = connection._stream.receive_into

        async def receive_later(buffer: memoryview) -> int:
            await go.wait()
            connection._stream.receive_into = receive_into  # type: ignore[method-assign]
            first = await receive_into(buffer)
            return first + await receive_into(buffer[first:])

        connection._stream.receive_into = receive_later  # type: ignore[method-assign]
        await connection.call(ASK, 9)  # from the next response on

        def follow(now: float) -> None:
            events.append(f"after, {connection.in_flight} in flight")
            assert now == connection.last_used_at
            connection.submit(ASK, 9, ignore)
            connection.submit(ASK, 9, ignore)

        def done(response: object, error: object) -> None:
            events.append("answer")
            connection.call_after_answers(follow)

        connection.submit(ASK, 9, done)
        connection.submit(ASK, 9, done)
        assert not connection.can_send
        await broker.wait_for(MetadataRequest, 4)
        await trio.sleep(1)
        go.set()
        await trio.sleep(1)
        assert events == ["answer", "answer", "after, 0 in flight", "room"]


@simulated
async def test_callback_after_responses_runs_when_the_connection_ends_with_them() -> None:
    called: list[float] = []
    async with connected(max_in_flight=5) as (broker, connection):

        def done(response: object, error: object) -> None:
            connection.call_after_answers(called.append)
            connection.close(KafkaConnectionError("enough"))

        connection.submit(ASK, 9, done)
        await broker.wait_for(MetadataRequest)
        await trio.sleep(1)
        assert len(called) == 1
