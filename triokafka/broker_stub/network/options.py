"""The network layer's options from the broker's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.image import QuotaEntity
from triokafka.broker_stub.network.connection_limits import ConnectionConfig
from triokafka.broker_stub.network.socket_server import SocketConfig
from triokafka.quota_precedence import IP
from triokafka.structs import usual_address

_SHARE_OF_MEMORY: Final = 8
_MOST_REQUEST_BYTES: Final = 192 << 20


def request_bytes(config: BrokerConfig, available: int) -> int:
    """Return the limit of request bytes for a broker with ``available`` bytes of memory."""
    if config.queued_max_request_bytes is not None:
        return config.queued_max_request_bytes
    return max(min(available // _SHARE_OF_MEMORY, _MOST_REQUEST_BYTES), config.socket_request_max_bytes)


def socket_config(config: BrokerConfig, available_memory: int) -> SocketConfig:
    """Return the configuration of `SocketServer` for a broker with ``available_memory`` bytes of memory."""
    return SocketConfig(
        request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        connections=_connection_config(config),
        handler_slots=config.num_io_threads,
        queued_max_requests=config.queued_max_requests,
        queued_max_request_bytes=request_bytes(config, available_memory),
        queued_request_stall_timeout_ms=config.queued_request_stall_timeout_ms,
        queued_max_response_bytes=config.queued_max_response_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        listen_backlog_size=config.socket_listen_backlog_size,
        failed_authentication_delay_ms=config.connection_failed_authentication_delay_ms,
    )


def ip_connection_rates(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> dict[str | None, float]:
    """Return the ``connection_creation_rate`` by address. The key None is the default for all other addresses."""
    rates: dict[str | None, float] = {}
    for entity, values in quotas.items():
        if "connection_creation_rate" in values and len(entity) == 1:
            ((kind, name),) = entity
            if kind == IP:
                rates[None if name is None else usual_address(name)] = values["connection_creation_rate"]
    return rates


def _connection_config(config: BrokerConfig) -> ConnectionConfig:
    listeners = [listener.name for listener in config.broker_listeners]
    return ConnectionConfig(
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.connections_per_ip,
        max_connection_creation_rate=config.max_connection_creation_rate,
        listener_max_connections=config.listener_limits("max.connections"),
        listener_max_connection_creation_rate=config.listener_limits("max.connection.creation.rate"),
        protected=config.inter_broker_listener if len(listeners) > 1 else None,
        rate_samples=config.quota_window_num,
        rate_window_seconds=config.quota_window_size_seconds,
    )
