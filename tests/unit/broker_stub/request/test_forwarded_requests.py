"""The client of a forwarded request, as the controller sees it."""

from __future__ import annotations

import ipaddress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.forwarded_requests import ForwardedRequests, encode_address, encode_principal
from triokafka.protocol.api.create_topics import CreateTopicsRequest
from triokafka.protocol.api.envelope import EnvelopeRequest
from triokafka.protocol.frames import SIZE_BYTES, encode_request


async def peer_of(address: bytes) -> str:
    """Forward a request of a client at ``address``; return the address that the controller authorizes."""
    seen: list[str] = []

    async def dispatch_forwarded(*_: Any, peer: tuple[str, int], **__: Any) -> tuple[bytes, int]:
        seen.append(peer[0])
        return b"", 0

    dispatcher = cast(Dispatcher, SimpleNamespace(dispatch_forwarded=dispatch_forwarded))
    data = b"".join(encode_request(CreateTopicsRequest(), version=7, correlation_id=1, client_id="a"))[SIZE_BYTES:]
    principal = encode_principal("User:alice")
    envelope = EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)
    await ForwardedRequests(dispatcher).answer(envelope, cast(Any, None))
    return seen[0]


@pytest.mark.parametrize(
    ("host", "seen"),
    [("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::1"), ("::ffff:192.0.2.1", "192.0.2.1")],
)
async def test_controller_sees_the_address_as_the_broker_does(host: str, seen: str) -> None:
    assert await peer_of(ipaddress.ip_address(host).packed) == seen
    assert await peer_of(encode_address(host)) == seen
