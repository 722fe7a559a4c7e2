"""The world of a broker that can be made to fail: as long as it is not, a connection is what it is without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from triokafka.testing.faulty_world import FaultyWorld
from triokafka.world import Stream
from triokafka.world.socket_stream import WAKES_WHEN_FULL
from triokafka.world.system import RealWorld


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[trio.SocketStream, Stream]]:
    """A client's end, and the end of what was accepted in such a world."""
    listener = await FaultyWorld(RealWorld()).listen("127.0.0.1", 0)
    try:
        async with await trio.open_tcp_stream(*listener.address) as client:
            accepted = await listener.accept()
            try:
                yield client, accepted
            finally:
                accepted.close()
    finally:
        listener.close()


async def test_it_counts_how_often_was_waited() -> None:
    """Who waits for each answer is told by that from who sends ahead, also where the broker can be made to fail."""
    room = memoryview(bytearray(100))
    async with connection() as (client, accepted):
        await client.send_all(b"first")
        await accepted.receive_into(room)
        before = accepted.waits
        for number in range(1, 4):
            await client.send_all(b"next")
            assert await accepted.receive_into(room) == 4
            assert accepted.waits == before + number


@pytest.mark.skipif(not WAKES_WHEN_FULL, reason="this kernel is not told what is waited for")
async def test_it_is_not_woken_for_every_few_bytes_of_what_was_announced() -> None:
    room = memoryview(bytearray(10_000))
    received: list[int] = []
    async with connection() as (client, accepted):
        await client.send_all(b"size")
        await accepted.receive_into(room)

        async def receive() -> None:
            received.append(await accepted.receive_into(room))

        accepted.expect(1000, at_once=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await client.send_all(bytes(10))
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert not received
            await client.send_all(bytes(990))
    assert received == [1000]


async def test_half_open_connection_neither_brings_nor_takes_anything_and_new_ones_do() -> None:
    world = FaultyWorld(RealWorld())
    listener = await world.listen("127.0.0.1", 0)
    room = memoryview(bytearray(100))
    async with await trio.open_tcp_stream(*listener.address) as client:
        accepted = await listener.accept()
        world.half_open()
        assert accepted.try_send(b"lost") == 4
        await accepted.send(b"lost", b"too")
        await client.send_all(b"lost")
        for wait in (client.receive_some, lambda: accepted.receive_into(room)):
            with trio.move_on_after(0.05) as nothing_comes:
                await wait()
            assert nothing_comes.cancelled_caught
        accepted.close()
        with pytest.raises(trio.ClosedResourceError):
            await accepted.receive_into(room)
    async with await trio.open_tcp_stream(*listener.address) as client:
        accepted = await listener.accept()
        await accepted.send(b"new")
        assert await client.receive_some() == b"new"
        accepted.close()
    listener.close()
