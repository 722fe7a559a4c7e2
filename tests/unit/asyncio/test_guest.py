"""A Trio run beside asyncio, in one thread."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import uvloop

from tests.support.asyncio_programs import until
from triokafka.asyncio import keyboard_interrupts
from triokafka.asyncio.bridge import Bridge
from triokafka.asyncio.guest import GuestLoop, guest_loop
from triokafka.asyncio.loop_sockets import LoopStream
from triokafka.asyncio.stepped_run import is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="this system, or this Trio, has no such run")

NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    """Return what makes a loop."""
    uvloop.new_event_loop().close()  # the first one of a process opens files that stay open
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


def open_files() -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))


def guest_of_this_loop() -> GuestLoop:
    """Return the guest of the running loop."""
    found = guest_loop(asyncio.get_running_loop())
    assert found is not None
    return found


def test_call_runs_in_the_thread_of_the_loop_and_leaves_nothing(new_loop: NewLoop) -> None:
    async def work(number: int) -> tuple[int, int]:
        await trio.sleep(0.001)
        send, receive = trio.open_memory_channel[int](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send.send, number)
            return await receive.receive(), threading.get_ident()

    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        before = open_files()
        assert await bridge.call(work, 7) == (7, threading.get_ident())
        await until(lambda: open_files() == before)
        with pytest.raises(RuntimeError):
            trio.lowlevel.current_task()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())


def test_sockets_of_trio_wake_the_loop(new_loop: NewLoop) -> None:
    async def ping_pong() -> bytes:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listeners[0], trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, echo, listeners)
            stream = await trio.testing.open_stream_to_socket_listener(listeners[0])
            received = b""
            async with stream:
                for number in range(20):
                    await stream.send_all(bytes([number]))
                    received += await stream.receive_some()
            nursery.cancel_scope.cancel()
        return received

    async def echo(stream: trio.SocketStream) -> None:
        async for some in stream:
            await stream.send_all(some)

    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        async with asyncio.timeout(30):
            assert await bridge.call(ping_pong) == bytes(range(20))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())


async def start_open_task(ended: list[str]) -> None:
    """Start a task of Trio that waits until it is cancelled, needs some time to end, and reports its end."""
    begun: list[None] = []

    async def work() -> None:
        begun.append(None)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            ended.append("cleanly")

    guest_of_this_loop().start(work, name="open")
    await until(lambda: bool(begun))


async def turns_of_the_loop(guest: GuestLoop, count: int) -> None:
    """Wait, in a task of Trio, until the asyncio loop has looked for bytes ``count`` times."""
    done = trio.Event()

    def turn(left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(turn, left - 1)
        else:
            guest.soon(done.set)

    guest.post(turn, count)
    await done.wait()


@asynccontextmanager
async def connected(guest: GuestLoop) -> AsyncIterator[tuple[LoopStream, socket.socket]]:
    """A stream of the guest's world, in a task of Trio, and the other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = await guest.world.connect(*listener.getsockname())
        there, _ = listener.accept()
    assert isinstance(stream, LoopStream)
    with there:
        try:
            yield stream, there
        finally:
            stream.close()


def test_loop_stream_receives_bytes_that_arrive_before_and_during_the_wait(new_loop: NewLoop) -> None:
    async def work(guest: GuestLoop) -> list[bytes]:
        received, room = list[bytes](), bytearray(10)
        async with connected(guest) as (stream, there):
            for number in range(20):
                if number % 3:
                    guest.post(there.send, bytes([number]))
                else:
                    there.send(bytes([number]))
                    await trio.sleep(0.002)
                got = await stream.receive_into(memoryview(room))
                received.append(bytes(room[:got]))
            there.shutdown(socket.SHUT_WR)
            assert await stream.receive_into(memoryview(room)) == 0
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_into(memoryview(room))
        return received

    async def program() -> None:
        before = open_files()
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        async with asyncio.timeout(60):
            assert await bridge.call(work, guest_of_this_loop()) == [bytes([number]) for number in range(20)]
        await until(lambda: open_files() == before)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())


def test_reader_of_a_loop_stream_raises_after_a_reset_and_after_a_close(new_loop: NewLoop) -> None:
    async def receive(stream: LoopStream, errors: list[type[Exception]]) -> None:
        try:
            await stream.receive_into(memoryview(bytearray(10)))
        except (OSError, trio.ClosedResourceError) as error:
            errors.append(type(error))

    async def work(guest: GuestLoop) -> list[type[Exception]]:
        errors: list[type[Exception]] = []
        async with connected(guest) as (stream, there), trio.open_nursery() as nursery:
            nursery.start_soon(receive, stream, errors)
            await trio.testing.wait_all_tasks_blocked()
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            there.close()
        async with connected(guest) as (stream, there), trio.open_nursery() as nursery:
            nursery.start_soon(receive, stream, errors)
            await trio.testing.wait_all_tasks_blocked()
            stream.close()
        return errors

    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        async with asyncio.timeout(60):
            errors = await bridge.call(work, guest_of_this_loop())
        assert errors == [ConnectionResetError, trio.ClosedResourceError]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())


def test_bytes_that_no_task_wants_yet_do_not_keep_the_loop_busy(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = LoopStream.note_ready, list[None]()

    def counted(self: LoopStream) -> None:
        calls.append(None)
        original(self)

    monkeypatch.setattr(LoopStream, "note_ready", counted)

    async def work(guest: GuestLoop) -> bytes:
        room = bytearray(1)
        async with connected(guest) as (stream, there):
            there.send(b"a")
            await stream.receive_into(memoryview(room))
            with trio.move_on_after(0.005):
                await stream.receive_into(memoryview(room))
            guest.post(there.send, b"bcd")
            await turns_of_the_loop(guest, 50)
            received = b""
            for _ in range(3):
                await stream.receive_into(memoryview(room))
                received += room
            return received

    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        async with asyncio.timeout(60):
            assert await bridge.call(work, guest_of_this_loop()) == b"bcd"
        assert len(calls) < 10

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())


def test_stream_receives_its_last_bytes_after_the_loop_was_closed(new_loop: NewLoop) -> None:
    received: list[bytes] = []
    waiting: list[None] = []

    async def work(guest: GuestLoop) -> None:
        async with connected(guest) as (stream, there), trio.open_nursery() as nursery:
            room = bytearray(10)

            async def last_bytes() -> None:
                with trio.CancelScope(shield=True):
                    got = await stream.receive_into(memoryview(room))
                    received.append(bytes(room[:got]))

            nursery.start_soon(last_bytes)
            await trio.testing.wait_all_tasks_blocked()
            waiting.append(None)
            try:
                await trio.sleep_forever()
            finally:
                there.send(b"the end")

    async def program() -> None:
        guest_of_this_loop().start(work, guest_of_this_loop(), name="open")
        await until(lambda: bool(waiting))

    before = open_files()
    loop = new_loop()
    loop.run_until_complete(program())
    loop.close()
    assert received == [b"the end"]
    assert open_files() == before


@pytest.mark.parametrize("how", ["asyncio.run", "loop.close"])
def test_tasks_end_with_the_loop(new_loop: NewLoop, how: str) -> None:
    ended: list[str] = []
    before = open_files()
    loop = new_loop()
    loop.run_until_complete(start_open_task(ended))
    if how == "asyncio.run":
        loop.run_until_complete(loop.shutdown_asyncgens())
        assert ended == ["cleanly"]
    loop.close()
    assert ended == ["cleanly"]
    assert open_files() == before


def test_task_that_needs_longer_ends_in_a_thread() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(may_end.wait)
        ended.set()

    async def program() -> None:
        guest_of_this_loop().start(work, name="stubborn")
        await until(begun.is_set)

    asyncio.run(program())
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(30)


def test_other_thread_may_call() -> None:
    async def program() -> None:
        guest, done = guest_of_this_loop(), asyncio.Event()

        async def work() -> None:
            guest.post(done.set)

        thread = threading.Thread(target=lambda: guest.start(work, name="from a thread"))
        thread.start()
        async with asyncio.timeout(30):
            await done.wait()
        thread.join()

    asyncio.run(program())


def test_loops_of_one_thread_and_other_trio_runs_do_not_meet() -> None:
    async def number() -> int:
        await trio.sleep(0)
        return 5

    async def call() -> int:
        return await Bridge(asyncio.get_running_loop(), 40_000, beside=True).call(number)

    async def keep() -> None:
        guest_of_this_loop().start(trio.sleep_forever, name="open")

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(keep())
    assert second.run_until_complete(call()) == 5
    assert trio.run(number) == 5
    assert first.run_until_complete(call()) == 5
    second.close()
    first.close()


def test_failed_task_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("one task")

    async def number() -> int:
        return 5

    async def program() -> int:
        guest_of_this_loop().start(fail, name="failing")
        return await Bridge(asyncio.get_running_loop(), 40_000, beside=True).call(number)

    assert asyncio.run(program()) == 5
    assert "a background task failed" in caplog.text


def test_runs_follow_each_other() -> None:
    async def program() -> list[int]:
        bridge, found = Bridge(asyncio.get_running_loop(), 40_000, beside=True), list[int]()

        async def work(number: int) -> None:
            found.append(number)

        before = open_files()
        for number in range(50):
            await bridge.call(work, number)
        await asyncio.gather(*(bridge.call(work, number) for number in range(50, 60)))
        await until(lambda: open_files() == before)
        return found

    assert sorted(asyncio.run(program())) == list(range(60))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interruption_of_a_task_reaches_the_program_and_the_loop_works_afterwards(
    new_loop: NewLoop, error: type[BaseException]
) -> None:
    ended: list[str] = []

    async def interrupt() -> None:
        await trio.testing.wait_all_tasks_blocked()
        raise error

    async def other() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cleanly")

    async def begin() -> None:
        guest_of_this_loop().start(other, name="other")
        guest_of_this_loop().start(interrupt, name="interrupted")
        await asyncio.sleep(30)

    async def number() -> int:
        return 5

    async def call() -> int:
        return await Bridge(asyncio.get_running_loop(), 40_000, beside=True).call(number)

    before = open_files()
    loop = new_loop()
    with pytest.raises(error):
        loop.run_until_complete(begin())
    assert ended == ["cleanly"]
    assert loop.run_until_complete(call()) == 5
    loop.close()
    assert open_files() == before


@pytest.fixture
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_handler")
@pytest.mark.parametrize("how", ["run_until_complete", "Runner"])
def test_interrupt_waits_until_trio_has_done_its_work(new_loop: NewLoop, how: str) -> None:
    done: list[str] = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the step")
        await trio.sleep(0.01)
        done.append("the next step")

    async def begin() -> None:
        guest_of_this_loop().start(work, name="interrupted")
        await asyncio.sleep(30)

    async def rest() -> None:
        await until(lambda: len(done) == 2)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        with pytest.raises(KeyboardInterrupt):
            if how == "Runner":
                runner.run(begin())
            else:
                runner.get_loop().run_until_complete(begin())
        assert done == ["the rest of the step"]
        runner.get_loop().run_until_complete(rest())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_usual_handler")
def test_handler_is_set_once_for_a_program_and_gone_with_it(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    original, handlers = keyboard_interrupts._set_handler, list[object]()

    def counted(number: int, handler: object) -> object:
        handlers.append(handler)
        return original(number, handler)

    monkeypatch.setattr(keyboard_interrupts, "_set_handler", counted)

    async def keep_busy() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        guest_of_this_loop().start(trio.sleep_forever, name="open")
        for _ in range(10):
            await bridge.call(trio.sleep, 0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        for runs in range(1, 3):
            runner.run(keep_busy())
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert len(handlers) <= 3 * runs


@pytest.mark.usefixtures("_usual_handler")
def test_interrupt_between_two_works_of_trio_cancels_the_main_task(new_loop: NewLoop) -> None:
    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        await bridge.call(trio.sleep, 0)
        guest_of_this_loop().start(trio.sleep_forever, name="open")
        await bridge.call(trio.testing.wait_all_tasks_blocked)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    ended: list[str] = []
    with pytest.raises(KeyboardInterrupt), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())
    assert ended == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_usual_handler")
def test_handler_of_the_program_is_called_at_once() -> None:
    called: list[str] = []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        called.append("work")

    async def program() -> None:
        signal.signal(signal.SIGINT, lambda number, frame: called.append("handler"))
        guest_of_this_loop().start(work, name="interrupted")
        await until(lambda: len(called) == 2)

    asyncio.run(program())
    assert called == ["handler", "work"]


def test_interruption_of_a_callback_leaves_the_others(new_loop: NewLoop) -> None:
    called: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        guest = guest_of_this_loop()
        guest.post(called.append, 1)
        guest.post(interrupt)
        guest.post(called.append, 2)

    async def program() -> None:
        guest_of_this_loop().start(work, name="posting")
        await asyncio.sleep(30)

    async def rest() -> None:
        await until(lambda: called == [1, 2])

    loop = new_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(program())
    loop.run_until_complete(rest())
    loop.close()


def test_answer_that_arrived_while_the_loop_was_busy_comes_before_the_deadline(new_loop: NewLoop) -> None:
    async def receive(stream: trio.SocketStream, there: socket.socket) -> bytes:
        guest = guest_of_this_loop()

        def be_busy() -> None:
            there.send(b"in time")
            time.sleep(0.1)
            guest.now(lambda: None)

        guest.post(asyncio.get_running_loop().call_soon, be_busy)  # called once this task waits and its timer is set
        with trio.move_on_after(0.05):
            return await stream.receive_some()
        return b"too late"

    async def program() -> bytes:
        bridge = Bridge(asyncio.get_running_loop(), 40_000, beside=True)
        here, there = socket.socketpair()
        here.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
        received = await bridge.call(receive, stream, there)
        here.close()
        there.close()
        return received

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(program()) == b"in time"


def test_forked_child_leaves_the_sockets_of_its_parent_alone() -> None:
    ended: list[str] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(start_open_task(ended))
    child = os.fork()
    if not child:
        try:
            loop.close()
        finally:
            os._exit(1 if ended else 0)
    assert os.waitpid(child, 0)[1] == 0
    loop.close()
    assert ended == ["cleanly"]
