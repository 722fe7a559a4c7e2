"""TLS over any stream: small and large sends, partial sends, and what arrives."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
import trio
import trustme

from tests.support.simulated import current_simulation, simulated
from triokafka.world import Stream
from triokafka.world.file_slice import Descriptor, FileSlice
from triokafka.world.tls_stream import TlsStream, receive_client_hello, start_tls_client

AUTHORITY = trustme.CA()


class Choosy(Stream):
    """Takes only ``room`` bytes of a send that does not wait."""

    def __init__(self, inner: Stream) -> None:
        self.inner = inner
        self.room = 0

    async def send(self, *buffers: object) -> None:
        await self.inner.send(*buffers)  # type: ignore[arg-type]

    def try_send(self, *buffers: object) -> int:
        part = memoryview(buffers[0])[: self.room]  # type: ignore[arg-type]
        self.room -= len(part)
        self.pending = bytes(part)
        return self.inner.try_send(part) if part else 0

    async def receive_into(self, buffer: memoryview) -> int:
        return await self.inner.receive_into(buffer)

    def close(self) -> None:
        self.inner.close()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self.inner.peer_address

    @property
    def local_address(self) -> tuple[str, int]:
        return self.inner.local_address


async def pair(*, choosy: bool = False) -> tuple[TlsStream, TlsStream]:
    simulation = current_simulation()
    listener = await simulation.host("server").world.listen("127.0.0.1", 0)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("server").configure_cert(server_context)
    client_context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
    made: list[TlsStream] = []

    async def serve() -> None:
        stream = TlsStream(await listener.accept(), server_context, server_side=True, server_name=None)
        await stream.handshake()
        made.append(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        raw = await simulation.host("client").world.connect(*listener.address)
        client = await start_tls_client(Choosy(raw) if choosy else raw, client_context, "server")
    return client, made[0]


async def receive(stream: Stream, size: int) -> bytes:
    got = bytearray()
    room = memoryview(bytearray(100_000))
    while len(got) < size:
        count = await stream.receive_into(room)
        assert count
        got += room[:count]
    return bytes(got)


@pytest.mark.parametrize("sizes", [[1], [0, 5, 0], [100] * 50, [3_000_000], [10, 400_000, 20]])
@simulated
async def test_sent_parts_arrive_complete(sizes: list[int]) -> None:
    client, server = await pair()
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    whole = b"".join(parts)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.send(*parts))
        assert await receive(server, len(whole)) == whole
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.send_parts(parts))
        assert await receive(client, len(whole)) == whole


class _ColdSlice(FileSlice):
    """Bytes of which none is in the page cache; notes the sizes of its reads."""

    __slots__ = ("reads",)

    def copy_resident(self, start: int, target: memoryview) -> int:
        return 0

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        data = super().read(start, size)
        self.reads = [*getattr(self, "reads", ()), len(data)]
        return data


@simulated
async def test_bytes_that_a_thread_reads_from_disk_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(1_000_000))
    part = _ColdSlice(Descriptor(os.open(path, os.O_RDONLY)), 100, 900_000)
    client, server = await pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: server.send_parts([b"head", part, b"tail"]))
        assert await receive(client, 900_008) == b"head" + path.read_bytes()[100:900_100] + b"tail"
    assert max(part.reads) <= 131_072


@pytest.mark.parametrize("room", [0, 1, 50, 20_000, 10**6])
@simulated
async def test_rest_of_a_partial_send_follows_once(room: int) -> None:
    client, server = await pair(choosy=True)
    assert isinstance(client.inner, Choosy)
    data = bytes(range(250)) * 200
    client.inner.room = room
    sent = client.try_send(data[:100], data[100:])
    assert sent < len(data) or room == 10**6
    assert client.try_send(b"never") == 0 or room == 10**6
    async with trio.open_nursery() as nursery:
        if sent < len(data):
            nursery.start_soon(lambda: client.send(data[sent:]))
        expected = data + b"never" if room == 10**6 else data
        assert await receive(server, len(expected)) == expected


@simulated
async def test_closed_peer_ends_the_stream() -> None:
    client, server = await pair()
    server.close()
    assert await client.receive_into(memoryview(bytearray(10))) == 0


async def hello_of(*pieces: bytes) -> bytes | ssl.SSLError:
    """Send the pieces one after the other, close, and return what `receive_client_hello` returns or raises."""
    simulation = current_simulation()
    listener = await simulation.host("server").world.listen("127.0.0.1", 0)
    client = await simulation.host("client").world.connect(*listener.address)
    server = await listener.accept()

    async def send() -> None:
        for piece in pieces:
            await client.send(piece)
            await trio.sleep(1)  # virtual seconds
        client.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        received: bytes | ssl.SSLError
        try:
            received = await receive_client_hello(server)
        except ssl.SSLError as error:
            received = error
        nursery.cancel_scope.cancel()
    return received


@simulated
async def test_first_message_of_a_client_may_come_in_pieces() -> None:
    record = b"\x16\x03\x01" + (3000).to_bytes(2, "big") + bytes(3000)
    assert await hello_of(record[:1], record[1:4], record[4:2000], record[2000:]) == record


@pytest.mark.parametrize("size", [1, 3, 4, 100, 600])
@simulated
async def test_first_message_of_a_client_may_come_in_many_records(size: int) -> None:
    """TLS takes memory only when it is whole, so that a first record of one byte does not cost the broker more."""
    message = b"\x01" + (512).to_bytes(3, "big") + bytes(512)
    cut = [message[start : start + size] for start in range(0, len(message), size)]
    records = [b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in cut]
    assert await hello_of(*records, b"more") == b"".join(records)
    error = await hello_of(*records[:-1], records[-1][:-1])
    assert isinstance(error, ssl.SSLEOFError)


@simulated
async def test_first_message_that_is_too_long_goes_to_the_handshake() -> None:
    record = b"\x16\x03\x01" + (1000).to_bytes(2, "big") + b"\x01\xff\xff\xff" + bytes(996)
    assert await hello_of(*[record] * 40) == record * 17


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1",
        b"\x16\x03\x01\xff\xff",
        b"\0\0\0\x10",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\0\4\2\0\0\xff",
        b"\x16\x03\x01\0\1\1\x15\x03\x01\0\2",
    ],
)
@simulated
async def test_bytes_that_are_not_tls_reach_the_handshake_at_once(start: bytes) -> None:
    assert await hello_of(start) == start


@simulated
async def test_peer_that_closes_within_its_first_message_ends_the_handshake() -> None:
    error = await hello_of(b"\x16\x03\x01\x01\x00abc")
    assert isinstance(error, ssl.SSLEOFError) and "during the TLS handshake" in str(error)
