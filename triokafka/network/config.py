"""The configuration of a `NetworkClient`. The client package validates users' options and supplies their defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from triokafka.hooks import NO_HOOKS, HookChain
from triokafka.network.traffic import Traffic
from triokafka.world import Stream

if TYPE_CHECKING:  # imported when there is TLS or SASL
    from triokafka.security.client_security import ClientSecurity

StreamFactory = Callable[[str, int], Awaitable["Stream | trio.abc.Stream"]]
"""Connects to a host and a port, for instance through a proxy. The host is the unresolved name that brokers advertise.
Any exception from it counts as a failure to connect."""

CANONICAL_BOOTSTRAP: Final = "resolve_canonical_bootstrap_servers_only"
"""A value of ``client_dns_lookup``: TLS and Kerberos check a bootstrap server against the canonical name of its address
(KIP-235)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Settings of one `NetworkClient`; names and meaning are Kafka's.

    Times are milliseconds. ``bootstrap_servers`` are host and port pairs, tried in random order. With ``controllers``
    they are controllers, and so are all nodes of the client's metadata, which has no topics (KIP-919).
    """

    bootstrap_servers: Sequence[tuple[str, int]]
    client_id: str | None = None
    security_protocol: str = "PLAINTEXT"
    security: ClientSecurity | None = None
    client_dns_lookup: str = "use_all_dns_ips"
    request_timeout_ms: float = 30_000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1_000
    socket_connection_setup_timeout_ms: float = 10_000
    socket_connection_setup_timeout_max_ms: float = 30_000
    connections_max_idle_ms: float = 540_000
    connections_max_silence_ms: float = 9_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    stream_factory: StreamFactory | None = None
    max_in_flight_requests_per_connection: int = 100
    receive_message_max_bytes: int = 256 << 20
    receive_pool_bytes: int = 64 << 20
    metadata_max_age_ms: float = 300_000
    metadata_max_idle_ms: float = 300_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: float = 300_000
    allow_auto_create_topics: bool = True
    controllers: bool = False
    hooks: HookChain = NO_HOOKS
    traffic: Traffic | None = None
