"""Reach brokers through a SOCKS5 proxy: `stream_factory` makes the connections.

ssh -D 1080 gateway
python examples/socks5_proxy.py kafka.internal:9092 127.0.0.1 1080
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import trio

import triokafka


def socks5(proxy_host: str, proxy_port: int) -> Callable[[str, int], Awaitable[trio.abc.Stream]]:
    """A stream factory that connects through a SOCKS5 proxy without authentication (RFC 1928), which resolves names."""

    async def connect(host: str, port: int) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(proxy_host, proxy_port)
        try:
            await stream.send_all(b"\x05\x01\x00")  # version 5, one method: no authentication
            if await receive_exactly(stream, 2) != b"\x05\x00":
                raise OSError("the proxy wants a name and a password")
            name = host.encode("idna")
            address = b"\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big")
            await stream.send_all(b"\x05\x01\x00" + address)  # version 5, connect, reserved
            _, refusal, _, kind = await receive_exactly(stream, 4)
            if refusal:
                raise OSError(f"the proxy cannot connect to {host}:{port} (reply {refusal})")
            size = {1: 4, 4: 16}.get(kind) or (await receive_exactly(stream, 1))[0]
            await receive_exactly(stream, size + 2)  # the proxy's own end of the connection
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    return connect


async def receive_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """Receive ``size`` bytes. Raises `OSError` if the peer closes before."""
    received = b""
    while len(received) < size:
        more = await stream.receive_some(size - len(received))
        if not more:
            raise OSError("the proxy closed the connection")
        received += more
    return received


async def main(bootstrap_servers: str, proxy_host: str, proxy_port: str, topic: str = "orders") -> None:
    """Send one record through the proxy."""
    factory = socks5(proxy_host, int(proxy_port))
    async with triokafka.Producer(bootstrap_servers=bootstrap_servers, stream_factory=factory) as producer:
        metadata = await (await producer.send(topic, b"two coffees"))
        print(f"{metadata.topic}, partition {metadata.partition}, offset {metadata.offset}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(f"usage: python {sys.argv[0]} HOST:PORT PROXY_HOST PROXY_PORT [TOPIC]")
    trio.run(main, *sys.argv[1:])
