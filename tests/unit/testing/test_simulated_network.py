"""The network in memory: sending without waiting."""

from __future__ import annotations

import pytest
import trio

from tests.support.simulated import current_simulation, simulated
from triokafka.world import Stream


async def pair() -> tuple[Stream, Stream]:
    simulation = current_simulation()
    listener = await simulation.host("server").world.listen("127.0.0.1", 0)
    client = await simulation.host("client").world.connect(*listener.address)
    return client, await listener.accept()


@simulated
async def test_as_much_is_sent_at_once_as_the_window_takes_and_the_rest_waits() -> None:
    client, server = await pair()
    data = bytes(range(256)) * 8192
    taken = client.try_send(data[:1000], data[1000:])
    assert 0 < taken < len(data)
    assert client.try_send(data) == 0
    received = bytearray()
    buffer = memoryview(bytearray(1 << 16))

    async def receive() -> None:
        while len(received) < len(data):
            received.extend(buffer[: await server.receive_into(buffer)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await client.send(data[taken:])
    assert received == data


@simulated
async def test_closed_cut_and_dead_streams_refuse_as_they_do_when_waiting() -> None:
    client, server = await pair()
    current_simulation().network.cut("client")
    with pytest.raises(ConnectionResetError):
        client.try_send(b"x")
    server.close()
    with pytest.raises(trio.ClosedResourceError):
        server.try_send(b"x")
    client, server = await pair()
    await current_simulation().host("client").kill()
    with pytest.raises(OSError, match="is dead"):
        client.try_send(b"x")


@simulated
async def test_paused_process_sends_nothing() -> None:
    client, _ = await pair()
    world = current_simulation().host("client").world
    world.pause()
    assert client.try_send(b"x") == 0
    world.resume()
    assert client.try_send(b"x") == 1


@simulated
async def test_half_open_connection_loses_sent_bytes_and_hides_its_end() -> None:
    client, server = await pair()
    network = current_simulation().network
    assert network.half_open("client", "server", one_way=True) == 1
    await client.send(b"lost")
    client.close()
    buffer = memoryview(bytearray(10))
    with trio.move_on_after(1_000) as nothing_comes:
        await server.receive_into(buffer)
    assert nothing_comes.cancelled_caught
    client, server = await pair()
    await client.send(b"new")
    assert await server.receive_into(buffer) == 3


@simulated
async def test_black_hole_holds_connects_back_until_it_heals() -> None:
    network = current_simulation().network
    client, server = await pair()
    network.black_hole("client", "server", one_way=True)
    with trio.move_on_after(1_000) as held:
        await pair()
    assert held.cancelled_caught
    await server.send(b"the other way")
    assert await client.receive_into(memoryview(bytearray(20))) == 13
    network.heal()
    await pair()


@simulated
async def test_dripping_connection_brings_so_many_bytes_a_second() -> None:
    client, server = await pair()
    current_simulation().network.drip("client", "server", 10)
    began = trio.current_time()
    await client.send(b"x" * 100)
    received = 0
    while received < 100:
        received += await server.receive_into(memoryview(bytearray(100)))
    assert 10 <= trio.current_time() - began < 10.1
