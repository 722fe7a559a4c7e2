"""The operating system behind the door: sockets on loopback, files, locks."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from triokafka.world import Stream
from triokafka.world.os_storage import OsStorage
from triokafka.world.socket_stream import WAKES_WHEN_FULL, wakes_when_full
from triokafka.world.system import RealWorld


async def pair(world: RealWorld) -> tuple[Stream, Stream]:
    listener = await world.listen("127.0.0.1", 0)
    client = await world.connect(*listener.address)
    server = await listener.accept()
    listener.close()
    return client, server


async def test_receive_reports_whether_it_waited() -> None:
    """A connection's task then knows that other tasks have run."""
    client, server = await pair(RealWorld())
    buffer = memoryview(bytearray(100))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.receive_into, buffer[:2])
            await trio.testing.wait_all_tasks_blocked()
            waits = server.waits
            await client.send(b"1234")
        assert server.waits == waits == 1
        assert await server.receive_into(buffer[:2]) == 2  # they are there already
        assert server.waits == 1
    client.close()
    server.close()


async def test_all_buffers_arrive_in_order_through_a_full_socket() -> None:
    client, server = await pair(RealWorld())
    parts = [os.urandom(size) for size in (0, 1, 3_000_000, 7, 2_000_000)]
    received = bytearray()

    async def receive() -> None:
        buffer = memoryview(bytearray(100_000))
        while got := await server.receive_into(buffer):
            received.extend(buffer[:got])

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await client.send(*parts)
            client.close()
    assert bytes(received) == b"".join(parts)
    server.close()


@pytest.mark.skipif(not WAKES_WHEN_FULL, reason="this kernel does not honour SO_RCVLOWAT")
@pytest.mark.parametrize(
    ("at_once", "steps"),
    [
        (
            100_000,  # and at once by whatever comes behind them
            [(1, []), (59_999, []), (40_000, [100_000]), (3, [100_000, 3]), (1, [100_000, 3, 1])],
        ),
        (60_000, [(59_999, []), (1, [60_000]), (39_999, [60_000]), (1, [60_000, 40_000])]),
    ],
    ids=["all of them", "some at a time"],
)
async def test_receiver_wakes_when_the_expected_bytes_have_arrived(
    at_once: int, steps: list[tuple[int, list[int]]]
) -> None:
    client, server = await pair(RealWorld())
    received: list[int] = []

    async def receive() -> None:
        while got := await server.receive_into(memoryview(bytearray(200_000))):
            received.append(got)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            server.expect(100_000, at_once=at_once)
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            for size, found in steps:
                await client.send(bytes(size))
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert received == found
            client.close()
    server.close()


@pytest.mark.parametrize(
    ("system", "release", "wakes"),
    [
        ("Linux", "6.18.44-generic", True),
        ("Linux", "5.12.0", True),
        ("Linux", "5.10.240-1-amd64", False),
        ("Linux", "4.18.0-553.el8_10.x86_64", False),
        ("Linux", "4.4.0", False),  # what gVisor takes itself for
        ("Linux", "unknown", False),
        ("Darwin", "24.6.0", False),
    ],
)
def test_receive_low_watermark_is_not_set_on_kernels_that_may_not_wake(system: str, release: str, wakes: bool) -> None:
    assert wakes_when_full(system, release) is wakes


@pytest.mark.parametrize("sent", [0, 10, 70_000])
async def test_receiver_that_expects_more_bytes_wakes_at_the_end(sent: int) -> None:
    client, server = await pair(RealWorld())
    received = 0
    server.expect(1_000_000, at_once=1_000_000)

    async def send() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await client.send(bytes(sent))
        client.close()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while got := await server.receive_into(memoryview(bytearray(1000))):
                received += got
    assert received == sent
    server.close()


async def test_kernel_without_a_receive_low_watermark_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "SO_RCVLOWAT", 9_999)  # an option that there is not
    client, server = await pair(RealWorld())
    server.expect(100_000, at_once=100_000)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                assert await server.receive_into(memoryview(bytearray(10))) == 1

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            await client.send(b"x")
    client.close()
    server.close()


async def test_more_may_be_announced_than_the_kernel_has_room_for() -> None:
    world = RealWorld()
    listener = await world.listen("127.0.0.1", 0, receive_buffer_bytes=4096)
    client = await world.connect(*listener.address, send_buffer_bytes=4096)
    server = await listener.accept()
    listener.close()
    received, buffer = 0, memoryview(bytearray(1 << 20))
    server.expect(1 << 20, at_once=1 << 20)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, bytes(1 << 20))
            while received < 1 << 20:
                received += await server.receive_into(buffer[received:])
    client.close()
    server.close()


async def test_close_wakes_waiters_with_closed_resource_error() -> None:
    client, server = await pair(RealWorld())

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_into(memoryview(bytearray(1)))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            client.close()
    client.close()
    with pytest.raises(trio.ClosedResourceError):
        await client.send(b"x")
    server.close()


async def test_threads_of_the_application_do_not_keep_those_of_the_library_waiting() -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    tokens = int(limiter.total_tokens)
    holders = [object() for _ in range(tokens)]
    for holder in holders:
        limiter.acquire_on_behalf_of_nowait(holder)
    try:
        with trio.fail_after(30):
            assert await RealWorld().run_in_thread(divmod, 7, 2) == (3, 1)
    finally:
        for holder in holders:
            limiter.release_on_behalf_of(holder)


async def test_as_much_is_sent_at_once_as_the_socket_takes() -> None:
    client, server = await pair(RealWorld())
    assert client.try_send(b"ab", bytearray(b"cd"), memoryview(b"e")) == 5
    taken = 0
    data = os.urandom(1 << 20)
    while sent := client.try_send(data, data):
        taken += sent
    buffer = memoryview(bytearray(1 << 20))
    received = bytearray()
    while len(received) < 5 + taken:
        received += buffer[: await server.receive_into(buffer)]
    assert received[:15] == b"abcde" + data[:10]
    with trio.fail_after(10):
        await client.send(b"more")
        assert buffer[: await server.receive_into(buffer)] == b"more"
    client.close()
    with pytest.raises(trio.ClosedResourceError):
        client.try_send(b"x")
    server.close()
    with pytest.raises(trio.ClosedResourceError):
        await server.receive_into(buffer)


async def test_bytes_that_arrive_between_receives_are_found() -> None:
    """Also after a receive that emptied the socket."""
    client, server = await pair(RealWorld())
    buffer = memoryview(bytearray(10))
    with trio.fail_after(10):
        for piece in (b"a", b"bc", b"0123456789", b"d"):
            await client.send(piece)
            assert buffer[: await server.receive_into(buffer)] == piece
        client.close()
        assert await server.receive_into(buffer) == 0
        assert await server.receive_into(buffer) == 0
    server.close()


async def test_buffers_of_the_kernel_have_the_size_that_was_requested() -> None:
    """Both ends have it."""
    world = RealWorld()
    sizes: dict[str, Any] = {"send_buffer_bytes": 50_000, "receive_buffer_bytes": 40_000}
    listener = await world.listen("127.0.0.1", 0, **sizes)
    client = await world.connect(*listener.address, **sizes)
    server = await listener.accept()
    for stream in (client, server):
        raw = stream._sock  # type: ignore[attr-defined]
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (50_000, 100_000)  # Linux doubles it
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (40_000, 80_000)
        stream.widen_send_buffer(80_000)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (80_000, 160_000)
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        stream.close()
    listener.close()


@pytest.mark.parametrize("host", ["no such host", "a..b", "x" * 80, "nul\0byte"])
async def test_name_that_cannot_be_resolved_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError):
        await RealWorld().resolve(host, 9092)


async def test_address_without_a_name_is_its_own_name() -> None:
    """KIP-235."""
    world = RealWorld()
    assert await world.canonical_name("192.0.2.1") == "192.0.2.1"
    assert await world.canonical_name("127.0.0.1")


async def test_a_listener_outlives_a_peer_that_resets_before_it_is_accepted() -> None:
    world = RealWorld()
    listener = await world.listen("127.0.0.1", 0)
    gone = socket.create_connection(listener.address)
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()  # with no linger this is a reset
    client = await world.connect(*listener.address)
    with trio.fail_after(10):
        accepted = await listener.accept()
        while accepted.peer_address != client.local_address:
            accepted.close()
            accepted = await listener.accept()
    accepted.close()
    client.close()
    listener.close()
    with pytest.raises(trio.ClosedResourceError):
        await listener.accept()


async def test_a_port_in_use_is_an_os_error() -> None:
    world = RealWorld()
    listener = await world.listen("127.0.0.1", 0)
    with pytest.raises(OSError) as refused:
        await world.listen(*listener.address)
    assert refused.value.errno == errno.EADDRINUSE
    listener.close()


def test_a_view_of_a_file_that_was_shortened_from_outside_is_an_error(tmp_path: Path) -> None:
    storage = OsStorage()
    file = storage.open(str(tmp_path / "log"), create=True)
    assert file.write_at(0, b"abc", b"defgh") == 8
    view = file.view(2, 4)
    os.truncate(tmp_path / "log", 4)
    assert bytes(view) == b"cdef"
    with pytest.raises(OSError, match="ends at byte 4"):
        file.view(2, 4)
    file.close()
    file.close()


def test_a_write_continues_where_the_system_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:3], offset))
    file = OsStorage().open(str(tmp_path / "log"), create=True)
    assert file.write_at(0, b"0123456789", b"abcd") == 14
    assert file.read_at(0, 100) == b"0123456789abcd"
    file.close()


def test_when_a_file_was_changed_can_be_read_and_set(tmp_path: Path) -> None:
    storage = OsStorage()
    before_ms = RealWorld().wall_ms()
    path = str(tmp_path / "log")
    storage.open(path, create=True).write_at(0, b"a")
    assert before_ms - 1000 <= storage.modified_ms(path)  # kernels take the time of their last tick
    storage.set_modified_ms(path, 1_700_000_000_123)
    assert storage.modified_ms(path) == 1_700_000_000_123
    assert storage.read_file(path) == b"a"
    assert storage.modified_ms(path) == 1_700_000_000_123
    with pytest.raises(FileNotFoundError):
        storage.modified_ms(str(tmp_path / "nothing"))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device", "directory"])
def test_special_file_is_refused_by_name(tmp_path: Path, kind: str, read_only: bool) -> None:
    """Opening a pipe waits for its other end. This pipe has one, so that the test fails instead of waiting."""
    path = tmp_path / "00000000000000000000.log"
    with ExitStack() as opened:
        if kind == "a named pipe":
            os.mkfifo(path)
            opened.callback(os.close, os.open(path, os.O_RDWR))
        elif kind == "a socket":
            opened.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        elif kind == "a device":
            path.symlink_to("/dev/null")
        else:
            path.mkdir()
        with pytest.raises(OSError, match=kind) as caught:
            OsStorage().open(str(path), create=True, read_only=read_only)
        assert caught.value.filename == str(path)


def test_absolute_path_begins_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert OsStorage().absolute("logs/../data/") == str(tmp_path / "data")
    assert OsStorage().absolute("/data/one") == "/data/one"


def test_a_lock_excludes_another_broker_of_the_same_process_until_it_is_released(tmp_path: Path) -> None:
    storage = OsStorage()
    release = storage.lock(str(tmp_path / ".lock"))
    with pytest.raises(BlockingIOError):
        storage.lock(str(tmp_path / ".lock"))
    release()
    storage.lock(str(tmp_path / ".lock"))()


def test_replacing_a_file_leaves_the_new_content_and_no_remains(tmp_path: Path) -> None:
    storage = OsStorage()
    path = str(tmp_path / "checkpoint")
    storage.replace_file(path, b"a longer first content")
    storage.replace_file(path, b"second")
    assert storage.read_file(path) == b"second"
    assert storage.list_dir(str(tmp_path)) == ["checkpoint"]


async def test_clock_has_the_time_of_now(autojump_clock: trio.testing.MockClock) -> None:
    world = RealWorld()
    clock = world.loop_clock()
    await trio.sleep(10)
    assert clock() == world.now() == trio.current_time()


def test_clock_that_was_requested_outside_of_an_event_loop_has_the_time_of_the_one_that_runs() -> None:
    clock = RealWorld().loop_clock()

    async def main() -> None:
        assert clock() == trio.current_time()

    for start in (5.0, 70.0):
        time = trio.testing.MockClock()
        time.jump(start)
        trio.run(main, clock=time)


async def test_clock_of_a_world_with_its_own_time_has_that_time() -> None:
    class Stopped(RealWorld):
        def now(self) -> float:
            return 7.0

    assert Stopped().loop_clock()() == 7.0


async def test_ipv4_peer_of_an_ipv6_listener_has_its_ipv4_address() -> None:
    """Access control and limits compare addresses as text: rules for an IPv4 address hold on every listener."""
    world = RealWorld()
    try:
        listener = await world.listen("::", 0)
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    client = await world.connect("127.0.0.1", listener.address[1])
    accepted = await listener.accept()
    assert accepted.peer_address == ("127.0.0.1", client.local_address[1])
    for stream in (client, accepted, listener):
        stream.close()
