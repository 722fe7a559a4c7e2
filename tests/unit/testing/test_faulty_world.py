"""The world of a broker with fault injection: without a fault, a connection behaves as in the real world."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from triokafka.testing.faulty_world import FaultyWorld
from triokafka.world import Listener, Stream
from triokafka.world.socket_stream import WAKES_WHEN_FULL
from triokafka.world.system import RealWorld


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[trio.SocketStream, Stream]]:
    """A client's end, and the accepted end in such a world."""
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
    """A client that waits for each response is distinguished from a pipelining one, also with fault injection."""
    room = memoryview(bytearray(100))
    async with connection() as (client, accepted):
        await client.send_all(b"first")
        await accepted.receive_into(room)
        before = accepted.waits
        for number in range(1, 4):
            await client.send_all(b"next")
            assert await accepted.receive_into(room) == 4
            assert accepted.waits == before + number


@pytest.mark.skipif(not WAKES_WHEN_FULL, reason="this kernel does not honour SO_RCVLOWAT")
async def test_receiver_is_not_woken_for_every_few_of_the_expected_bytes() -> None:
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


async def test_black_hole_takes_present_connections_permanently_and_holds_new_ones_back_until_it_is_healed() -> None:
    world = FaultyWorld(RealWorld())
    listener = await world.listen("127.0.0.1", 0)
    async with await trio.open_tcp_stream(*listener.address) as present:
        accepted = await listener.accept()
        world.black_hole()
        await accepted.send(b"lost")
        async with await trio.open_tcp_stream(*listener.address) as later:
            await later.send_all(b"request")
            with trio.move_on_after(0.05) as no_answer:
                await listener.accept()
            assert no_answer.cancelled_caught
        async with await trio.open_tcp_stream(*listener.address) as later, trio.open_nursery() as nursery:
            await later.send_all(b"request")
            nursery.start_soon(answer_one, listener)
            await trio.testing.wait_all_tasks_blocked(0.05)
            world.heal()
            with trio.fail_after(5):
                assert await later.receive_some() == b"answer to request"
        await accepted.send(b"lost, too")
        with trio.move_on_after(0.05) as nothing_comes:
            await present.receive_some()
        assert nothing_comes.cancelled_caught
        accepted.close()
    listener.close()


async def answer_one(listener: Listener) -> None:
    """Accept one connection and answer its request."""
    accepted = await listener.accept()
    room = memoryview(bytearray(100))
    size = await accepted.receive_into(room)
    await accepted.send(b"answer to ", room[:size])
    accepted.close()


async def test_outgoing_connection_is_made_when_the_black_hole_is_healed() -> None:
    world = FaultyWorld(RealWorld())
    listener = await RealWorld().listen("127.0.0.1", 0)
    made: list[Stream] = []

    async def connect() -> None:
        made.append(await world.connect(*listener.address))

    world.black_hole()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not made
        world.heal()
    accepted = await listener.accept()
    await made[0].send(b"hello")
    assert await accepted.receive_into(memoryview(bytearray(100))) == 5
    made[0].close()
    accepted.close()
    listener.close()


async def test_dripping_connection_brings_everything_slowly_and_new_ones_are_fast() -> None:
    world = FaultyWorld(RealWorld())
    listener = await world.listen("127.0.0.1", 0)
    room = memoryview(bytearray(1_000))
    async with await trio.open_tcp_stream(*listener.address) as client:
        accepted = await listener.accept()
        world.drip(1_000)
        assert accepted.try_send(b"x") == 0
        began = trio.current_time()
        await accepted.send(bytes(100), bytes(100))
        got = b""
        while len(got) < 200:
            got += await client.receive_some()
        assert trio.current_time() - began >= 0.2
        await client.send_all(bytes(600))
        began, received = trio.current_time(), 0
        while received < 600:
            size = await accepted.receive_into(room)
            assert size <= 500
            received += size
        assert trio.current_time() - began >= 0.5
        accepted.close()
    async with await trio.open_tcp_stream(*listener.address) as client:
        accepted = await listener.accept()
        assert accepted.try_send(b"fast") == 4
        accepted.close()
    listener.close()


async def test_bytes_of_a_dripping_connection_survive_a_cancelled_receive() -> None:
    world = FaultyWorld(RealWorld())
    listener = await world.listen("127.0.0.1", 0)
    room = memoryview(bytearray(1_000))
    async with await trio.open_tcp_stream(*listener.address) as client:
        accepted = await listener.accept()
        world.drip(200)
        await client.send_all(bytes(range(200)))
        received = bytearray()
        while len(received) < 200:
            with trio.move_on_after(0.05):
                size = await accepted.receive_into(room)
                received += room[:size]
        assert received == bytes(range(200))
        accepted.close()
    listener.close()


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_rate_of_a_drip_is_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="more than 0 bytes a second"):
        FaultyWorld(RealWorld()).drip(rate)


async def test_port_is_held_until_a_listener_takes_it_and_after_that_has_closed() -> None:
    world = FaultyWorld(RealWorld())
    address = world.held_ports.hold("127.0.0.1", 0)
    assert address is not None
    assert not is_free(address)
    for _ in range(2):
        listener = await world.listen(*address)
        listener.close()
        listener.close()
        assert not is_free(address)
        with pytest.raises(OSError, match="refused"):
            await world.connect(*address)
    world.held_ports.release_all()
    assert is_free(address)


def is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as other:
        try:
            other.bind(address)
        except OSError:
            return False
    return True
