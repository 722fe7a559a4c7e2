"""Clients that misbehave in many ways, from one seed, and one good client whose response times are measured.

``python -m tests.support.abuse HOST PORT SEED SECONDS PATIENCE PAUSE MOST_BYTES`` misbehaves for ``SECONDS``, with the
lowest priority, and prints the number of each kind of misbehaviour as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import trio

from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request
from triokafka.records import encode_batch

TOPIC = "abused"
_CLIENT_HELLO = bytes.fromhex("16030100f4010000f003036b4c4f0a1d2e3f4051627384a5b6c7d8e9fa0b1c2d3e4f5061728394a5b6c7d8")
_HTTP = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n"


def requests() -> list[tuple[Request[Any], int]]:
    """Valid requests, with a version for each."""
    data = [PartitionProduceData(index=0, records=bytes(encode_batch([(0, None, b"v" * 100, ())])))]
    fetched = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)]
    return [
        (MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9),
        (ApiVersionsRequest(client_software_name="abuse", client_software_version="1"), 3),
        (ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]), 9),
        (FetchRequest(max_bytes=10_000, topics=[FetchTopic(topic=TOPIC, partitions=fetched)]), 11),
        (FindCoordinatorRequest(key="nobody"), 3),
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                ]
            ),
            7,
        ),
    ]


def frame(request: Request[Any], version: int, correlation_id: int = 1) -> bytes:
    """Return a request as bytes."""
    return b"".join(encode_request(request, version=version, correlation_id=correlation_id, client_id="abuse"))


class Abuse:
    """Opens connections and misuses them.

    Args:
        patience: seconds that a broker may take to close a connection.
        pause: seconds between the bytes of a slow sender.
        most_bytes: the largest frame that the broker accepts.
    """

    def __init__(self, host: str, port: int, seed: int, *, patience: float, pause: float, most_bytes: int) -> None:
        self.done: Counter[str] = Counter()
        self.connections = 0
        self._address = (host, port)
        self._random = Random(seed)
        self._patience = patience
        self._pause = pause
        self._most_bytes = most_bytes
        self._requests = requests()

    async def run(self, *, times: int, at_once: int) -> None:
        """Misuse the broker ``times`` times, from several tasks."""
        left = times

        async def abuser() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.once()

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(abuser)

    async def run_for(self, seconds: float, at_once: int) -> None:
        """Misuse the broker for ``seconds``; finish each misuse that was begun."""
        end = trio.current_time() + seconds

        async def abuser() -> None:
            while trio.current_time() < end:
                await self.once()
                await trio.sleep(self._random.uniform(0, 2))

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(abuser)

    async def once(self) -> None:
        """Do one random misuse."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.truncated, self.out_of_bounds, self.announced_and_not_sent, self.pipelined, self.interleaved,
            self.never_reading, self.slow, self.http, self.tls, self.garbage, self.mutated, self.unknown,
            self.silent, self.reset,
        ]  # fmt: skip
        kind = self._random.choice(kinds)
        try:
            await kind()
        except* (ConnectionError, trio.BrokenResourceError):
            pass  # the broker may also reset the connection, and this process may be too slow to read its responses
        self.done[kind.__name__] += 1

    async def truncated(self) -> None:
        """A valid request that is cut somewhere."""
        whole = self._good(1)
        async with await self._connect() as stream:
            await stream.send_all(whole[: self._random.randrange(len(whole))])

    async def out_of_bounds(self) -> None:
        """An invalid frame size."""
        size = self._random.choice([-1, -(2**31), 2**31 - 1, self._most_bytes + 1])
        async with await self._connect() as stream:
            await stream.send_all(struct.pack(">i", size) + b"abcd")
            await self._closed(stream)

    async def announced_and_not_sent(self) -> None:
        """The start of a frame of almost the maximum size."""
        size = self._random.randrange(self._most_bytes // 2, self._most_bytes)
        some = bytes(self._random.choice([0, 2, 100, 20_000, 100_000]))
        async with await self._connect() as stream:
            await stream.send_all(struct.pack(">i", size) + some)
            if self._random.random() < 0.5:
                await self._closed(stream)

    async def pipelined(self) -> None:
        """Many valid requests at once: the responses must arrive in the order of the requests."""
        count = self._random.randrange(1, 200)
        async with await self._connect() as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, self._good(count))
            for number in range(count):
                assert await self._answer(stream) == number

    async def interleaved(self) -> None:
        """Several connections with interleaved bytes: each must get its own responses."""
        streams = [await self._connect() for _ in range(5)]
        frames = [frame(*self._random.choice(self._requests), number) for number in range(5)]
        while any(frames):
            number = self._random.randrange(5)
            cut = self._random.randrange(1, 50)
            await streams[number].send_all(frames[number][:cut])
            frames[number] = frames[number][cut:]
        for number, stream in enumerate(streams):
            assert await self._answer(stream) == number
            await stream.aclose()

    async def never_reading(self) -> None:
        """Many fetches whose responses are never read."""
        fetches = frame(*self._requests[3]) * 50
        async with await self._connect() as stream:
            with trio.move_on_after(self._patience):
                while True:
                    await stream.send_all(fetches)

    async def slow(self) -> None:
        """A valid request, one byte at a time."""
        whole = self._good(1)
        async with await self._connect() as stream:
            with trio.move_on_after(self._patience):
                for byte in whole:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(self._pause)

    async def http(self) -> None:
        """An HTTP request."""
        async with await self._connect() as stream:
            await stream.send_all(_HTTP)
            await self._closed(stream)

    async def tls(self) -> None:
        """A TLS handshake."""
        async with await self._connect() as stream:
            await stream.send_all(_CLIENT_HELLO)
            await self._closed(stream)

    async def garbage(self) -> None:
        """A frame with random content."""
        content = self._random.randbytes(self._random.choice([0, 1, 8, 14, 100, 5000, 50_000]))
        async with await self._connect() as stream:
            await stream.send_all(struct.pack(">i", len(content)) + content)
            await self._closed(stream)

    async def mutated(self) -> None:
        """A valid request with a few changed bytes behind its size: the broker must answer it or close."""
        changed = bytearray(self._good(1))
        for _ in range(self._random.randrange(1, 5)):
            changed[self._random.randrange(4, len(changed))] = self._random.randrange(256)
        async with await self._connect() as stream:
            await stream.send_all(bytes(changed))
            with trio.move_on_after(self._patience):
                await stream.receive_some(1000)

    async def unknown(self) -> None:
        """An unknown API or version; the broker still answers ApiVersions."""
        changed = bytearray(frame(*self._requests[0]))
        changed[4:8] = struct.pack(">hh", *self._random.choice([(1000, 0), (-1, 0), (3, 99), (0, 0), (1, 3), (18, 99)]))
        async with await self._connect() as stream:
            await stream.send_all(bytes(changed))
            if changed[4:6] != b"\0\x12":
                await self._closed(stream)
            else:
                assert await self._answer(stream) == 1

    async def silent(self) -> None:
        """A connection without any bytes."""
        async with await self._connect() as stream:
            if self._random.random() < 0.3:
                await self._closed(stream)

    async def reset(self) -> None:
        """A connection that breaks during a request."""
        async with await self._connect() as stream:
            await stream.send_all(self._good(self._random.randrange(20)))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _connect(self) -> trio.SocketStream:
        self.connections += 1
        return await trio.open_tcp_stream(*self._address)

    def _good(self, count: int) -> bytes:
        return b"".join(frame(*self._random.choice(self._requests), number) for number in range(count))

    async def _answer(self, stream: trio.SocketStream) -> int:
        """Return the correlation id of the next response."""
        with trio.fail_after(self._patience * 10):
            size, number = struct.unpack(">ii", await _exactly(stream, 8))
            await _exactly(stream, size - 4)
        return int(number)

    async def _closed(self, stream: trio.SocketStream) -> None:
        with trio.fail_after(self._patience * 10):
            while await stream.receive_some(65_536):
                pass


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = await stream.receive_some(size - len(data))
        if not got:
            raise ConnectionResetError("closed by the broker")
        data += got
    return bytes(data)


class GoodClient:
    """Requests metadata, produces and fetches in a loop; ``seconds`` are the durations of the rounds."""

    def __init__(self, host: str, port: int) -> None:
        self.seconds: list[float] = []
        self.connections = 0
        self._address = (host, port)
        self._good = requests()

    async def run(self, seconds: float, pause: float = 0.01) -> None:
        """Work for ``seconds`` over its own connection. Fails if a response is wrong."""
        self.connections += 1
        async with await trio.open_tcp_stream(*self._address) as stream:
            end = trio.current_time() + seconds
            while trio.current_time() < end:
                await self.once_on(stream)
                await trio.sleep(pause)

    async def once_on(self, stream: trio.SocketStream) -> None:
        """One round over a connection."""
        for number, (request, version) in enumerate(self._good):
            start = time.perf_counter()
            await stream.send_all(frame(request, version, number))
            (size,) = struct.unpack(">i", await _exactly(stream, 4))
            body = await _exactly(stream, size)
            self.seconds.append(time.perf_counter() - start)
            correlation_id, _ = decode_response(request.response_type, body, version=version)
            assert correlation_id == number

    def quantile(self, share: float) -> float:
        """Return the duration below which this share of all rounds stayed."""
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(host: str, port: str, seed: str, seconds: str, patience: str, pause: str, most_bytes: str) -> None:
    """Misuse the broker for a while, with fifty connections at a time."""
    os.nice(19)
    abuse = Abuse(host, int(port), int(seed), patience=float(patience), pause=float(pause), most_bytes=int(most_bytes))
    trio.run(abuse.run_for, float(seconds), 50)
    print(json.dumps({"connections": abuse.connections, "done": abuse.done}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
