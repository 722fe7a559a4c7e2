"""A client that tries SASL on a listener without SASL gets an error that names the reason."""

from __future__ import annotations

import pytest

from tests.support.odd_requests import Asker
from tests.unit.broker_stub.api.node import running_node
from triokafka.errors import IllegalSaslStateError
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest
from triokafka.testing import running_broker


@pytest.mark.parametrize("version", [0, 1])
async def test_handshake_on_a_plaintext_listener_is_refused_with_the_sasl_state(version: int) -> None:
    """As in Kafka: a request that reaches the handlers has passed authentication."""
    async with running_node() as node:
        answer = await node.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (IllegalSaslStateError.code, [])


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_token_on_a_plaintext_listener_is_refused_in_words(version: int) -> None:
    async with running_node() as node:
        answer = await node.call(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"), version)
        assert answer.error_code == IllegalSaslStateError.code
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"


async def test_both_are_advertised_on_every_listener() -> None:
    """Kafka names all APIs of its brokers, whatever the listener and the state of the connection."""
    async with running_node() as node:
        named = {
            api.api_key: (api.min_version, api.max_version)
            for api in (await node.call(ApiVersionsRequest(), 2)).api_keys
        }
        assert (named[17], named[36]) == ((0, 1), (0, 2))


async def test_connection_stays_open_and_serves_the_next_request() -> None:
    """Tokens may arrive out of order."""
    async with running_broker() as broker:
        asker = Asker(broker.bootstrap_servers)
        address = broker.sockets.connection_count
        for _ in range(3):
            token = await asker.call(SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"), 2)
            handshake = await asker.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
            assert token.error_code == handshake.error_code == IllegalSaslStateError.code
        named = await asker.call(ApiVersionsRequest(), 2)
        assert named.error_code == 0 and broker.sockets.connection_count == address + 1
        asker.close()
