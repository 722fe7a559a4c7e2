"""The bootstrap servers, and when requests go to them: before the first metadata, and to rebootstrap."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from triokafka.network.broker_channel import BrokerChannel, ChannelState
from triokafka.network.config import NetworkConfig
from triokafka.structs import Node
from triokafka.world import World

logger = logging.getLogger(__name__)


class Bootstrap:
    """The bootstrap servers of one network client, as nodes with ids below 0.

    ``in_use`` is true before the first metadata, and again when all known brokers are lost.
    """

    def __init__(self, config: NetworkConfig, world: World) -> None:
        self.in_use = True
        self.nodes = {
            -1 - position: Node(-1 - position, host, port)
            for position, (host, port) in enumerate(config.bootstrap_servers)
        }
        self._world = world
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_seconds = config.metadata_recovery_rebootstrap_trigger_ms / 1000

    def note_lost_connection(self, channels: Mapping[int, BrokerChannel | None]) -> None:
        """Return to the bootstrap servers when every known broker failed since its last response (KIP-899).

        ``channels`` are the channels to the brokers of the metadata; None for a broker without one.
        """
        if self.in_use or not channels or not self._rebootstraps:
            return
        for channel in channels.values():
            if channel is None or channel.state is not ChannelState.DISCONNECTED or not channel.failed_connects:
                return
        logger.warning("none of the brokers %s can be reached; asking the bootstrap servers again", sorted(channels))
        self.in_use = True

    def note_no_metadata(self, last_success: float | None, *, start_over: bool) -> None:
        """Return to the bootstrap servers when a broker asks for it, or metadata is too old (KIP-1102)."""
        stale = last_success is not None and self._world.now() - last_success > self._trigger_seconds
        if self._rebootstraps and (start_over or stale):
            self.in_use = True
