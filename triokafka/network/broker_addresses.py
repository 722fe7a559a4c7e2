"""The addresses of one broker: its name is resolved for every attempt to connect, because brokers move (KIP-302)."""

from __future__ import annotations

from triokafka.named_tuple import NamedTuple
from triokafka.network.config import CANONICAL_BOOTSTRAP, NetworkConfig
from triokafka.structs import Node
from triokafka.world import World


class BrokerAddress(NamedTuple):
    """An address to connect to, and the name for the check of the broker's certificate."""

    host: str
    port: int
    server_name: str


async def broker_addresses(node: Node, config: NetworkConfig, world: World) -> list[BrokerAddress]:
    """Return the addresses to try, in order. Raises `OSError` if the name cannot be resolved."""
    if config.stream_factory is not None:
        return [BrokerAddress(node.host, node.port, node.host)]
    found = list(dict.fromkeys(await world.resolve(node.host, node.port)))
    if config.client_dns_lookup == CANONICAL_BOOTSTRAP and node.node_id < 0:
        return [BrokerAddress(host, port, await world.canonical_name(host)) for host, port in found]
    return [BrokerAddress(*address, node.host) for address in found]
