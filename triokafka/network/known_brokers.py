"""Which brokers there are, and the channel to each: bootstrap servers first, then those that metadata names.

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
    """The brokers of one network client. ``nodes`` gives what metadata knows now; ``on_change`` hears of every channel.

    ``use_bootstrap`` says whether the bootstrap servers are asked: before the first metadata, and again when every
    known broker is lost. ``on_unreachable`` is called when a broker is silent on all its connections.
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
        """Know a broker that metadata may not have named yet: a coordinator."""
        self._others[node.node_id] = node

    def candidates(self) -> Mapping[int, Node]:
        """The brokers to ask what any broker can answer."""
        nodes = self._nodes()
        return self._bootstrap if self.use_bootstrap or not nodes else nodes

    def channels(self) -> Iterator[BrokerChannel]:
        """All channels there are, of whatever purpose."""
        yield from list(self._channels.values())

    def channels_by_purpose(self) -> list[tuple[str, BrokerChannel]]:
        """All channels there are, each with its purpose."""
        return [(purpose, channel) for (_, purpose), channel in self._channels.items()]

    def known_channel(self, node_id: int, purpose: str = "") -> BrokerChannel | None:
        """The channel if there is one."""
        return self._channels.get((node_id, purpose))

    def channel(self, node_id: int, purpose: str = "") -> BrokerChannel:
        """The channel to a broker, made at first use. Raises `NodeNotReadyError` when no such broker is known."""
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
            )
            self._channels[node_id, purpose] = channel
        elif channel.node is not node and (channel.node.host, channel.node.port) != (node.host, node.port):
            # The broker moved: whatever was wrong with its old address says nothing about the new one.
            channel.node = node
            channel.retry_at = 0.0
            channel.failures = channel.failed_connects = 0
            if channel.connection is not None:
                channel.connection.close(KafkaConnectionError(f"{channel.name} has a new address"))
        return channel

    def _suspect_others(self, since: float) -> None:
        """A connection has been dead since that time: others may have died with it."""
        for channel in self.channels():
            if channel.connection is not None:
                channel.connection.suspect(since)

    def least_loaded(self) -> int | None:
        """The broker to ask when any will do; None when all are in reconnect back-off.

        Connected and idle first, then the one with the fewest requests in flight, then one not connected yet, then one
        that takes no more requests for the moment. Starts at a random one, so that not all clients ask the same; of
        those not connected, one that could be reached when last tried is preferred.
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
        """Seconds until the next candidate leaves its back-off; infinity when an event will tell."""
        now = self._world.now()
        return min(self.channel(node_id).delay(now) for node_id in self.candidates())

    def why_unreachable(self) -> str:
        """A sentence for who has waited in vain: which broker owes an answer, or the last connection failures."""
        asked = self.candidates()
        main = [channel for (_, purpose), channel in self._channels.items() if not purpose]
        connected = [c.name for c in main if c.state is ChannelState.READY and c.node.node_id in asked]
        if connected:
            return ", ".join(connected) + " has not answered yet"
        failures = [
            str(channel.error) if channel.error is not None else f"{channel.name} has not answered yet"
            for channel in main
            # One to a bootstrap server that merely was not needed any more is no failure.
            if channel.state is ChannelState.CONNECTING
            or (channel.error is not None and (channel.failed_connects or channel.node.node_id in asked))
        ]
        return "no broker can be reached: " + ("; ".join(failures) or "no connection was made in time")

    # ---------------------------------------------------------------- coming and going

    def note_lost_connection(self) -> None:
        """Go back to the bootstrap servers when every known broker failed since it last answered (KIP-899)."""
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
        """Go back to the bootstrap servers when a broker asks for it, or nothing was learnt for long (KIP-1102)."""
        limit = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        stale = last_success is not None and self._world.now() - last_success > limit
        if self._config.metadata_recovery_strategy == "rebootstrap" and (start_over or stale):
            self.use_bootstrap = True

    def note_metadata(self) -> None:
        """Ask the brokers that metadata names from now on; forget those that are gone, notice those that moved."""
        self.use_bootstrap = False
        known = self._nodes()
        for (node_id, purpose), channel in list(self._channels.items()):
            if node_id in known:
                self.channel(node_id, purpose)
            elif channel.state is ChannelState.DISCONNECTED and node_id not in self._others:
                del self._channels[node_id, purpose]
            elif node_id < 0 and channel.connection is not None and not channel.in_flight:
                channel.connection.close(KafkaConnectionError("the bootstrap connection is not needed any more"))
