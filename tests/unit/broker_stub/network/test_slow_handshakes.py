"""TLS handshakes that a client draws out end after 30 seconds, wherever it stops."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trio
import trustme

from tests.support.simulated import current_simulation, simulated
from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.config.listeners import ListenerSpec
from triokafka.broker_stub.network.authentication import AuthenticationFailedError
from triokafka.broker_stub.network.listener_security import ListenerSecurity

PEER = trustme.CA().issue_cert("broker")


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = client_hello()
OF_ONE_BYTE_EACH = b"".join(bytes([22, 3, 1, 0, 1, byte]) for byte in HELLO[5:])
"""The same message in records of one byte."""


@pytest.mark.parametrize(
    ("start", "rest", "options", "seconds"),
    [
        (0, HELLO, {}, 30),
        (len(HELLO), HELLO, {}, 30),
        (6, OF_ONE_BYTE_EACH, {}, 30),
        (0, HELLO, {"ssl_handshake_timeout_ms": 5_500}, 5.5),
    ],
    ids=[
        "a byte a second",
        "nothing after its first message",
        "a tiny record every six seconds",
        "with a limit of its own",
    ],
)
@simulated
async def test_handshake_that_takes_too_long_is_refused(
    start: int, rest: bytes, options: dict[str, Any], seconds: float
) -> None:
    simulation = current_simulation()
    world = simulation.host("broker").world
    config = BrokerConfig(
        security={
            "ssl.keystore.certificate.chain": PEER.cert_chain_pems[0].bytes().decode(),
            "ssl.keystore.key": PEER.private_key_pem.bytes().decode(),
        },
        **options,
    )
    security = ListenerSecurity(config, (ListenerSpec("SSL", "SSL", "broker", 9093),), world)
    listener = await world.listen("127.0.0.1", 0)
    client = await simulation.host("client").world.connect(*listener.address)
    server = await listener.accept()

    async def send() -> None:
        await client.send(rest[:start])
        for position in range(start, len(rest)):
            await trio.sleep(1)
            await client.send(rest[position : position + 1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        began = trio.current_time()
        with pytest.raises(AuthenticationFailedError, match=f"did not end within {seconds:g} s"):
            await security.authenticate(server, "SSL")
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.5)
        nursery.cancel_scope.cancel()
