"""aiokafka's options that all clients share, in the SDK's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_OF_SASL: Final = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")


def network_options(
    *,
    bootstrap_servers: Any,
    client_id: str | None,
    metadata_max_age_ms: int,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    connections_max_idle_ms: int | None,
    security_protocol: str,
    **security: Any,
) -> dict[str, Any]:
    """Return the SDK's options.

    Raises:
        ValueError: ``security_protocol`` is unknown, or SSL has no ``ssl_context``.
    """
    if security_protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    if security_protocol in ("SSL", "SASL_SSL") and security.get("ssl_context") is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    options: dict[str, Any] = {}
    if security_protocol != "PLAINTEXT":
        options = {"security_protocol": security_protocol, "ssl_context": security.get("ssl_context")}
    if security_protocol.startswith("SASL_"):
        options |= {name: security.get(name) for name in _OF_SASL}
    return {
        **options,
        "bootstrap_servers": servers(bootstrap_servers),
        "client_id": client_id,
        "metadata_max_age_ms": metadata_max_age_ms,
        "request_timeout_ms": request_timeout_ms,
        "retry_backoff_ms": retry_backoff_ms,
        "retry_backoff_max_ms": max(1_000, retry_backoff_ms),
        "connections_max_idle_ms": -1 if connections_max_idle_ms is None else connections_max_idle_ms,
        "close_timeout_ms": request_timeout_ms,
    }


def servers(given: Any) -> list[str]:
    """Return ``bootstrap_servers`` as a list of ``host:port``; the port is 9092 by default."""
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, Iterable):
        raise TypeError(f"bootstrap_servers={given!r} is neither a string nor a list of strings")
    return [_with_port(str(one).strip().rpartition("://")[2]) for one in given]


def _with_port(server: str) -> str:
    if server.startswith("["):
        return server if "]:" in server else f"{server}:9092"
    if server.count(":") > 1:
        return f"[{server}]:9092"
    return server if ":" in server else f"{server}:9092"
