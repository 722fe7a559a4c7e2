"""kafka-python's configuration: names that the SDK has under another name or unit, and names without effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.security.java_names import with_hidden_secrets

log = logging.getLogger(__name__)

API_VERSION: Final = (4, 3)
"""``config["api_version"]`` by default: the newest release whose protocol the SDK implements. The SDK negotiates
versions with each broker."""

NETWORK: Final[Mapping[str, Any]] = {
    "connections_max_idle_ms": 9 * 60 * 1000,
    "connections_max_silence_ms": 9_000,
    "metadata_max_age_ms": 300_000,
    "client_dns_lookup": "use_all_dns_ips",
    "retry_backoff_ms": 100,
    "request_timeout_ms": 30_000,
    "receive_message_max_bytes": 100_000_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "socket_options": [(6, 1, 1)],
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30_000,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 30_000,
    "metric_reporters": [],
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
    "selector": None,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}
"""Configuration of all three clients with kafka-python's defaults, except that ``selector`` and ``kafka_client`` are
None. kafka-python has no ``connections_max_silence_ms``."""

_WORDS: Final = {"acks"}
"""Numbers that may also be words."""

_TAKEN_AS_THEY_ARE: Final = (
    "bootstrap_servers",
    "client_id",
    "connections_max_idle_ms",
    "connections_max_silence_ms",
    "metadata_max_age_ms",
    "client_dns_lookup",
    "retry_backoff_ms",
    "request_timeout_ms",
    "receive_message_max_bytes",
    "reconnect_backoff_ms",
    "reconnect_backoff_max_ms",
    "security_protocol",
    "ssl_context",
    "ssl_check_hostname",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_crlfile",
    "ssl_password",
    "ssl_ciphers",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
)
_OF_THE_SDK: Final = (
    "sasl_username",
    "sasl_password",
    "sasl_jaas_config",
    "sasl_jaas_file",
    "ssl_keystore_password",
    "ssl_truststore_password",
)
_OF_THE_SDK_PREFIXES: Final = ("sasl_oauthbearer_", "sasl_login_")
"""Options of security that kafka-python does not have, and that go to the SDK."""
_ABSENT: Final[Mapping[str, str]] = {
    "proxy_url": "proxies are not supported; triokafka.Producer and Consumer take a stream_factory",
    "socks5_proxy": "proxies are not supported; triokafka.Producer and Consumer take a stream_factory",
}
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "selector": "Trio chooses its own selector",
    "kafka_client": "the network client cannot be replaced",
    "metric_reporters": "reporters are not supported; read metrics() instead",
    "socket_options": "the client sets TCP_NODELAY; other options are not supported",
}


def network_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK's options for the configuration that all clients share.

    Raises:
        ConfigurationError: an option has a value that the SDK does not support; the message names both.
    """
    for name, why in _ABSENT.items():
        if config.get(name) is not None:
            raise ConfigurationError(f"{name}: {why}")  # the value may hold a password
    for name, why in _WITHOUT_EFFECT.items():
        if name in config and config[name] != NETWORK[name]:
            log.warning("%s has no effect: %s", name, why)
    options = {name: config[name] for name in config if name in _TAKEN_AS_THEY_ARE or is_of_the_sdk(name)}
    options["bootstrap_servers"] = _addresses(config["bootstrap_servers"])
    if config.get("sasl_kerberos_name") is not None:  # the whole principal of the broker
        service, _, host = str(config["sasl_kerberos_name"]).partition("@")[0].partition("/")
        options |= {"sasl_kerberos_service_name": service, "sasl_kerberos_domain_name": host or None}
    for name in ("receive_buffer_bytes", "send_buffer_bytes"):
        options[name] = -1 if config[name] is None else config[name]
    options["reconnect_backoff_max_ms"] = max(options["reconnect_backoff_ms"], options["reconnect_backoff_max_ms"])
    options["retry_backoff_max_ms"] = max(1_000, options["retry_backoff_ms"])
    return options


def is_of_the_sdk(name: str) -> bool:
    """Whether this is an option of security that kafka-python does not have, and that goes to the SDK."""
    return name in _OF_THE_SDK or name.startswith(_OF_THE_SDK_PREFIXES)


def _addresses(given: Any) -> Any:
    """Return ``bootstrap_servers`` as the SDK takes them: a list, without a scheme such as ``PLAINTEXT://``."""
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, Iterable):
        return given
    return [one.strip().rpartition("://")[2] if isinstance(one, str) else one for one in given]


def admin_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for a short-lived `AdminClient`."""
    return {**network_options(config), "client_id": config["client_id"] or None}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def take(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the whole configuration: the given values over the defaults. Raises `ConfigurationError`."""
    unknown = {name for name in given if name not in defaults and not is_of_the_sdk(name)}
    if unknown:
        raise ConfigurationError(f"Unrecognized configs: {sorted(unknown)}")
    for name, value in given.items():
        if name not in _WORDS and _is_number(defaults.get(name)) and not (value is None or _is_number(value)):
            raise ConfigurationError(f"{name}={value!r} cannot be used: expected a number")
    config = {**defaults, **given}
    if isinstance(config["api_version"], str):
        text = config["api_version"]
        config["api_version"] = None if text == "auto" else tuple(map(int, text.split(".")))
        log.warning('use api_version=%s [tuple] -- "%s" as str is deprecated', config["api_version"], text)
    return with_hidden_secrets(config)
