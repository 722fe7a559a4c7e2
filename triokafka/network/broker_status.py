"""The state of a client's connections, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triokafka.errors import KafkaError
from triokafka.network.broker_channel import BrokerChannel, ChannelState
from triokafka.structs import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """The state of one connection to one broker. A node with an id below 0 is a bootstrap server.

    ``purpose`` is empty for the main connection, and names any further connection to the same broker. ``error`` is the
    reason why the last connection failed or ended, None while connected. ``failed_connects`` counts the attempts that
    failed since the last success. ``unused_for`` is in seconds, and None without a connection, as are the byte counts,
    which cover this connection only. ``throttled_for`` is the remaining throttle time in seconds.
    """

    node: Node
    purpose: str
    connected: bool
    connecting: bool
    error: KafkaError | None
    failed_connects: int
    requests_in_flight: int
    throttled_for: float
    unused_for: float | None
    bytes_sent: int | None
    bytes_received: int | None


def take_statuses(channels: Iterable[tuple[str, BrokerChannel]], now: float) -> list[BrokerStatus]:
    """The status of every channel, given with its purpose."""
    found = []
    for purpose, channel in channels:
        connection = channel.connection
        found.append(
            BrokerStatus(
                node=channel.node,
                purpose=purpose,
                connected=channel.state is ChannelState.READY,
                connecting=channel.state is ChannelState.CONNECTING,
                error=channel.error,
                failed_connects=channel.failed_connects,
                requests_in_flight=channel.in_flight,
                throttled_for=max(0.0, connection.throttled_until - now) if connection is not None else 0.0,
                unused_for=now - connection.last_used_at if connection is not None else None,
                bytes_sent=connection.bytes_sent if connection is not None else None,
                bytes_received=connection.bytes_received if connection is not None else None,
            )
        )
    return found
