"""Addresses and ids in messages have the form in which users type them."""

from __future__ import annotations

import socket
import uuid

import pytest

from triokafka import AdminClient
from triokafka.structs import Node, format_uuid, parse_uuid, usual_address
from triokafka.testing import running_broker


@pytest.mark.parametrize("number", [0, 2**127 + 5, 2**128 - 1])
def test_ids_have_kafkas_text_form(number: int) -> None:
    value = uuid.UUID(int=number)
    assert len(format_uuid(value)) == 22
    assert parse_uuid(format_uuid(value)) == value


@pytest.mark.parametrize("text", ["", "short", "too short", "A" * 23, "?" * 22, "A" * 24])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id: expected 22 characters"):
        parse_uuid(text)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("broker-1.example", "broker-1.example:9092"),
        ("192.0.2.9", "192.0.2.9:9092"),
        ("2001:db8::7", "[2001:db8::7]:9092"),
    ],
)
def test_the_address_of_a_broker_is_one_that_bootstrap_servers_takes(host: str, address: str) -> None:
    assert Node(1, host, 9092).address == address


async def test_a_broker_that_listens_by_ipv6_is_reached_by_the_address_that_it_names() -> None:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    async with running_broker(listeners=("PLAINTEXT://[::1]:0",)) as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        async with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            (node,) = (await admin.describe_cluster()).nodes
    assert node.address == broker.bootstrap_servers


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ("192.0.2.9", "192.0.2.9"),
        ("::ffff:192.0.2.9", "192.0.2.9"),
        ("0:0:0:0:0:ffff:c000:209", "192.0.2.9"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("broker-1.example", "broker-1.example"),
        ("a:b", "a:b"),
    ],
)
def test_usual_address_is_the_one_that_connections_report(given: str, usual: str) -> None:
    assert usual_address(given) == usual
