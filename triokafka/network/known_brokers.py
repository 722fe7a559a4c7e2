"""The known brokers, and the channel to each: bootstrap servers first, then the brokers from metadata.

Starts no task and sends nothing. Node ids below 0 are bootstrap servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from triokafka.errors import KafkaConnectionError, NodeNotReadyError
from triokafka.network.bootstrap import Bootstrap
from triokafka.network.broker_channel import BrokerChannel, ChannelState
from triokafka.network.config import NetworkConfig
from triokafka.network.least_loaded_node import least_loaded_node
from triokafka.network.receive_pool import ReceivePool
from triokafka.structs import Node
from triokafka.world import World


class KnownBrokers:
    """The brokers of one network client.

    ``nodes`` returns the brokers of the current metadata. ``on_change`` is called when the state of any channel
    changes, ``on_unreachable`` when a broker is silent on all its connections.
    """

    def __init__(
        self,
        config: NetworkConfig,
        world: World,
        *,
        nodes: Callable[[], Mapping[int, Node]],
        on_change: Callable[[], None],
        on_unreachable: Callable[[], None] = lambda: None,
    ) -> None:
        self.bootstrap = Bootstrap(config, world)
        self._config = config
        self._world = world
        self._nodes = nodes
        self._on_change = on_change
        self._on_unreachable = on_unreachable
        self._others: dict[int, Node] = {}
        self._channels: dict[tuple[int, str], BrokerChannel] = {}
        self._pool = ReceivePool(config.receive_pool_bytes)

    def add(self, node: Node) -> None:
        """Add a broker that may be missing in the metadata: a coordinator."""
        self._others[node.node_id] = node

    def candidates(self) -> Mapping[int, Node]:
        """The brokers for requests that any broker can answer."""
        nodes = self._nodes()
        return self.bootstrap.nodes if self.bootstrap.in_use or not nodes else nodes

    def channels(self) -> Iterator[BrokerChannel]:
        """All channels, of any purpose."""
        yield from list(self._channels.values())

    def channels_by_purpose(self) -> list[tuple[str, BrokerChannel]]:
        """All channels, each with its purpose."""
        return [(purpose, channel) for (_, purpose), channel in self._channels.items()]

    def known_channel(self, node_id: int, purpose: str = "") -> BrokerChannel | None:
        """Return the channel, None before its first use."""
        return self._channels.get((node_id, purpose))

    def channel(self, node_id: int, purpose: str = "") -> BrokerChannel:
        """Return the channel to a broker, created at its first use. Raises `NodeNotReadyError` for an unknown
        broker."""
        node = self._nodes().get(node_id) or self._others.get(node_id) or self.bootstrap.nodes.get(node_id)
        if node is None:
            raise NodeNotReadyError(f"broker {node_id} is not known; refresh the metadata")
        channel = self._channels.get((node_id, purpose))
        if channel is None:
            channel = BrokerChannel(
                node,
                world=self._world,
                config=self._config,
                pool=self._pool,
                on_change=self._on_change,
                on_dead=self._suspect_others,
                on_unreachable=self._on_unreachable,
                has_others=lambda: len(self.candidates()) > 1,
                purpose=purpose,
            )
            self._channels[node_id, purpose] = channel
        elif channel.node is not node and (channel.node.host, channel.node.port) != (node.host, node.port):
            # The broker moved: failures at its old address reveal nothing about the new one.
            channel.node = node
            channel.retry_at = 0.0
            channel.failures = channel.failed_connects = 0
            if channel.connection is not None:
                channel.connection.close(KafkaConnectionError(f"{channel.name} has a new address"))
        return channel

    def _suspect_others(self, since: float) -> None:
        """Note that a connection has been dead since that time: others may have died with it."""
        for channel in self.channels():
            if channel.connection is not None:
                channel.connection.suspect(since)

    def least_loaded(self) -> int | None:
        """Return the best broker for a request that any can answer; None when all are in reconnect back-off."""
        channels = {node_id: self._channels.get((node_id, "")) for node_id in self.candidates()}
        return least_loaded_node(channels, now=self._world.now(), random=self._world.random)

    def shortest_delay(self) -> float:
        """Return the seconds until the next candidate leaves its back-off; infinity if a listener will be called
        first."""
        now = self._world.now()
        return min(self.channel(node_id).delay(now) for node_id in self.candidates())

    def why_unreachable(self) -> str:
        """Return the reason for a timeout: the broker that has not answered, or the last connection failures."""
        asked = self.candidates()
        main = [channel for (_, purpose), channel in self._channels.items() if not purpose]
        connected = [c.name for c in main if c.state is ChannelState.READY and c.node.node_id in asked]
        if connected:
            return ", ".join(connected) + " has not answered yet"
        failures = [
            str(channel.error) if channel.error is not None else f"{channel.name} has not answered yet"
            for channel in main
            # Closing an unused connection to a bootstrap server is not a failure.
            if channel.state is ChannelState.CONNECTING
            or (channel.error is not None and (channel.failed_connects or channel.node.node_id in asked))
        ]
        return "no broker can be reached: " + ("; ".join(failures) or "no connection was made in time")

    # ---------------------------------------------------------------- changes

    def note_lost_connection(self) -> None:
        """Return to the bootstrap servers if every known broker is lost; see `Bootstrap.note_lost_connection`."""
        self.bootstrap.note_lost_connection({node_id: self._channels.get((node_id, "")) for node_id in self._nodes()})

    def note_metadata(self) -> None:
        """Use the brokers of the new metadata from now on: drop removed ones, reconnect to moved ones."""
        self.bootstrap.in_use = False
        known = self._nodes()
        for (node_id, purpose), channel in list(self._channels.items()):
            if node_id in known:
                self.channel(node_id, purpose)
            elif channel.state is ChannelState.DISCONNECTED and node_id not in self._others:
                del self._channels[node_id, purpose]
            elif node_id < 0 and channel.connection is not None and not channel.in_flight:
                channel.connection.close(KafkaConnectionError("the bootstrap connection is no longer needed"))
