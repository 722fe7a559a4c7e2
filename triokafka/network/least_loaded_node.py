"""The choice of a broker for a request that any broker can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from triokafka.network.broker_channel import BrokerChannel, ChannelState


class Chance(Protocol):
    """The part of `World.random` that the choice uses."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to ``stop`` - 1."""
        ...


def least_loaded_node(channels: Mapping[int, BrokerChannel | None], *, now: float, random: Chance) -> int | None:
    """Return the id of the best broker; None when all are in reconnect back-off.

    Order of preference: connected and idle; fewest requests in flight; not connected yet (one whose last attempt
    succeeded first); connecting; connected, but at its limit of requests. The search starts at a random broker, so
    that clients spread their requests. ``channels`` has None for a broker without a channel.
    """
    nodes = list(channels)
    start = random.randrange(len(nodes))
    best: int | None = None
    fewest_in_flight = 0
    unconnected: int | None = None
    fewest_failures = 0
    busy: int | None = None
    connecting: int | None = None
    for node_id in nodes[start:] + nodes[:start]:
        channel = channels[node_id]
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
    return next((choice for choice in (best, unconnected, connecting, busy) if choice is not None), None)
