"""aiokafka's options that all clients share, in the SDK's names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final

from triokafka.asyncio.abc import AbstractTokenProvider
from triokafka.asyncio.bridge import Bridge, BridgedTokenProvider
from triokafka.security.java_names import with_hidden_secrets

API_VERSION_IS_DEPRECATED: Final = (
    "The `api_version` parameter has been deprecated since 0.13.0. "
    "It is now a no-op and will be removed in a future release. "
)
_AS_THEY_ARE: Final = ("client_id", "metadata_max_age_ms", "request_timeout_ms", "retry_backoff_ms")


def warn_of_deprecated(text: str) -> None:
    """Warn the caller of a constructor about an argument."""
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def network_options(bridge: Bridge, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK's options of a client whose constructor has these arguments, by name.

    Raises:
        ValueError: ``security_protocol`` or ``sasl_mechanism`` is unknown, or something that they need is missing.
    """
    security_protocol, retry_backoff_ms = given["security_protocol"], given["retry_backoff_ms"]
    if security_protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    secured: dict[str, Any] = {"security_protocol": security_protocol}
    if security_protocol in ("SSL", "SASL_SSL"):
        if given["ssl_context"] is None:
            raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
        secured["ssl_context"] = given["ssl_context"]
    if security_protocol.startswith("SASL"):
        secured |= _login(bridge, **{name: value for name, value in given.items() if name.startswith("sasl_")})
    idle = given["connections_max_idle_ms"]
    return {
        **{name: given[name] for name in _AS_THEY_ARE},
        "bootstrap_servers": servers(given["bootstrap_servers"]),
        "retry_backoff_max_ms": max(1_000, retry_backoff_ms),
        "connections_max_idle_ms": -1 if idle is None else idle,
        "close_timeout_ms": given["request_timeout_ms"],
        **with_hidden_secrets(secured),
    }


def _login(
    bridge: Bridge,
    *,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_oauth_token_provider: Any,
    sasl_kerberos_service_name: str,
    sasl_kerberos_domain_name: str | None,
) -> dict[str, Any]:
    if sasl_mechanism not in ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        raise ValueError(
            "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`sasl_mechanism are supported at"
            " the moment"
        )
    if sasl_mechanism == "GSSAPI":
        return {
            "sasl_mechanism": sasl_mechanism,
            "sasl_kerberos_service_name": sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": sasl_kerberos_domain_name,
        }
    if sasl_mechanism == "OAUTHBEARER":
        from triokafka.security.oauth.retrieved_tokens import RetrievedTokens  # needed for tokens only

        if isinstance(sasl_oauth_token_provider, RetrievedTokens):
            return {"sasl_mechanism": sasl_mechanism, "sasl_oauth_token_provider": sasl_oauth_token_provider}
        if not isinstance(sasl_oauth_token_provider, AbstractTokenProvider):
            raise ValueError(
                "sasl_oauth_token_provider needs to be provided implementing aiokafka.abc.AbstractTokenProvider"
            )
        return {
            "sasl_mechanism": sasl_mechanism,
            "sasl_oauth_token_provider": BridgedTokenProvider(bridge, sasl_oauth_token_provider),
        }
    if sasl_plain_username is None or sasl_plain_password is None:
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")
    return {
        "sasl_mechanism": sasl_mechanism,
        "sasl_plain_username": sasl_plain_username,
        "sasl_plain_password": sasl_plain_password,
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
