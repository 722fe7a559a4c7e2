"""The known brokers, and the channel to each: bootstrap servers first, then the brokers from metadata.

Starts no task and sends nothing. Node ids below 0 are bootstrap servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from triokafka.errors import KafkaConnectionError, NodeNotReadyError
from triokafka.network.broker_channel import BrokerChannel, ChannelState
from triokafka.network.config import NetworkConfig
from triokafka.network.receive_pool import ReceivePool
from triokafka.structs import Node
from triokafka.world import World

logger = logging.getLogger(__name__)


class KnownBrokers:
    """The brokers of one network client.

    ``nodes`` returns the brokers of the current metadata. ``on_change`` is called when the state of any channel
    changes, ``on_unreachable`` when a broker is silent on all its connections. ``use_bootstrap`` is true before the
    first metadata, and again when all known brokers are lost: then requests go to the bootstrap servers.
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
        self.use_bootstrap = True
        self._config = config
        self._world = world
        self._nodes = nodes
        self._on_change = on_change
        self._on_unreachable = on_unreachable
        self._bootstrap = {
            -1 - position: Node(-1 - position, host, port)
            for position, (host, port) in enumerate(config.bootstrap_servers)
        }
        self._others: dict[int, Node] = {}
        self._channels: dict[tuple[int, str], BrokerChannel] = {}
        self._pool = ReceivePool(config.receive_pool_bytes)

    def add(self, node: Node) -> None:
        """Add a broker that may be missing in the metadata: a coordinator."""
        self._others[node.node_id] = node

    def candidates(self) -> Mapping[int, Node]:
        """The brokers for requests that any broker can answer."""
        nodes = self._nodes()
        return self._bootstrap if self.use_bootstrap or not nodes else nodes

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
        node = self._nodes().get(node_id) or self._others.get(node_id) or self._bootstrap.get(node_id)
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
        """Return the best broker for a request that any can answer; None when all are in reconnect back-off.

        Order of preference: connected and idle; fewest requests in flight; not connected yet (one whose last attempt
        succeeded first); connecting; connected, but at its limit of requests. The search starts at a random broker, so
        that clients spread their requests.
        """
        now = self._world.now()
        nodes = list(self.candidates())
        start = self._world.random.randrange(len(nodes))
        best: int | None = None
        fewest_in_flight = 0
        unconnected: int | None = None
        fewest_failures = 0
        busy: int | None = None
        connecting: int | None = None
        for node_id in nodes[start:] + nodes[:start]:
            channel = self._channels.get((node_id, ""))
            if channel is not None and channel.is_ready(now):
                if not channel.in_flight:
                    return node_id
                if best is None or channel.in_flight < fewest_in_flight:
                    best, fewest_in_flight = node_id, channel.in_flight
            elif channel is None or channel.may_connect(now):
                failures = 0 if channel is None else channel.failed_connects
                if unconnected is None or failures < fewest_failures:
                    unconnected, fewest_failures = node_id, failures
            elif channel.state is ChannelState.CONNECTING:
                connecting = node_id if connecting is None else connecting
            elif channel.state is ChannelState.READY:
                busy = node_id if busy is None else busy
        for choice in (best, unconnected, connecting, busy):
            if choice is not None:
                return choice
        return None

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
        """Return to the bootstrap servers when every known broker failed since its last response (KIP-899)."""
        nodes = self._nodes()
        if self.use_bootstrap or not nodes or self._config.metadata_recovery_strategy != "rebootstrap":
            return
        for node_id in nodes:
            channel = self._channels.get((node_id, ""))
            if channel is None or channel.state is not ChannelState.DISCONNECTED or not channel.failed_connects:
                return
        logger.warning("none of the brokers %s can be reached; asking the bootstrap servers again", sorted(nodes))
        self.use_bootstrap = True

    def note_no_metadata(self, last_success: float | None, *, start_over: bool) -> None:
        """Return to the bootstrap servers when a broker asks for it, or metadata is too old (KIP-1102)."""
        limit = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        stale = last_success is not None and self._world.now() - last_success > limit
        if self._config.metadata_recovery_strategy == "rebootstrap" and (start_over or stale):
            self.use_bootstrap = True

    def note_metadata(self) -> None:
        """Use the brokers of the new metadata from now on: drop removed ones, reconnect to moved ones."""
        self.use_bootstrap = False
        known = self._nodes()
        for (node_id, purpose), channel in list(self._channels.items()):
            if node_id in known:
                self.channel(node_id, purpose)
            elif channel.state is ChannelState.DISCONNECTED and node_id not in self._others:
                del self._channels[node_id, purpose]
            elif node_id < 0 and channel.connection is not None and not channel.in_flight:
                channel.connection.close(KafkaConnectionError("the bootstrap connection is no longer needed"))
