"""The fault proxy of the other tests: it injects the requested faults, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from tests.support.fault_proxy import FaultProxy


@asynccontextmanager
async def echo_through_a_proxy() -> AsyncIterator[tuple[FaultProxy, trio.SocketStream]]:
    """Run a proxy in front of an echo server, and connect through it."""

    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                async for data in stream:
                    await stream.send_all(data)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, echo, [listener])
            proxy = FaultProxy(listener.socket.getsockname()[:2])
            async with await trio.open_tcp_stream(*await proxy.start(nursery)) as stream:
                yield proxy, stream
            nursery.cancel_scope.cancel()


async def receive_exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await stream.receive_some(size - len(data)) or pytest.fail("the stream has ended")
    return data


async def test_bytes_pass_without_faults() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        await stream.send_all(b"hello")
        assert await receive_exactly(stream, 5) == b"hello"
        await stream.send_eof()
        assert await stream.receive_some() == b""
        assert (proxy.count, proxy.to_broker.bytes_passed, proxy.to_client.bytes_passed) == (1, 5, 5)


async def test_connection_is_reset_after_the_given_number_of_bytes() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        await stream.send_all(b"first")
        await receive_exactly(stream, 5)
        proxy.to_broker.cut_after = 3
        await stream.send_all(b"second")
        with pytest.raises(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        async with await trio.open_tcp_stream(*proxy.address) as another:
            await another.send_all(b"third")
            assert await receive_exactly(another, 5) == b"third"


async def test_one_direction_ends_after_the_given_number_of_bytes() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        proxy.to_client.end_after = 3
        await stream.send_all(b"hello")
        assert await receive_exactly(stream, 3) == b"hel"
        assert await stream.receive_some() == b""


async def test_held_bytes_arrive_after_the_release() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        proxy.to_client.hold()
        await stream.send_all(b"hello")
        with trio.move_on_after(0.05) as nothing_comes:
            await stream.receive_some()
        assert nothing_comes.cancelled_caught
        proxy.to_client.release()
        assert await receive_exactly(stream, 5) == b"hello"


async def test_swallowed_bytes_never_arrive() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        proxy.to_client.swallows = True
        await stream.send_all(b"hello")
        await stream.send_eof()
        assert await stream.receive_some() == b""
        assert proxy.to_broker.bytes_passed == 5
        assert proxy.to_client.bytes_passed == 0


async def test_half_open_connection_drops_all_bytes_and_new_ones_work() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        await stream.send_all(b"first")
        await receive_exactly(stream, 5)
        assert proxy.half_open(proxy.to_client) == 1
        await stream.send_all(b"second")
        async with await trio.open_tcp_stream(*proxy.address) as another:
            await another.send_all(b"third")
            assert await receive_exactly(another, 5) == b"third"
        assert proxy.to_client.bytes_passed == 10
        with trio.move_on_after(0.05) as nothing_comes:
            await stream.receive_some()
        assert nothing_comes.cancelled_caught


async def test_black_hole_accepts_new_connections_until_it_heals() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        proxy.black_hole()
        async with await trio.open_tcp_stream(*proxy.address) as taken:
            for one in (stream, taken):
                await one.send_all(b"lost")
                with trio.move_on_after(0.05) as nothing_comes:
                    await one.receive_some()
                assert nothing_comes.cancelled_caught
        proxy.heal()
        async with await trio.open_tcp_stream(*proxy.address) as another:
            await another.send_all(b"third")
            assert await receive_exactly(another, 5) == b"third"


async def test_dripping_connection_delivers_one_byte_after_the_other() -> None:
    async with echo_through_a_proxy() as (proxy, stream):
        await stream.send_all(b"first")
        await receive_exactly(stream, 5)
        proxy.drip(1_000, proxy.to_client)
        await stream.send_all(b"second")
        pieces = [await stream.receive_some() for _ in range(2)]
        assert len(pieces[0]) < 6
        assert await receive_exactly(stream, 6 - len(b"".join(pieces))) is not None
