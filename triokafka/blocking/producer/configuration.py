"""The configuration of `KafkaProducer`, and its translation into options of the SDK's producer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from triokafka.blocking.options import NETWORK, network_options
from triokafka.blocking.partitioner import DefaultPartitioner
from triokafka.errors import ConfigurationError

log = logging.getLogger(__name__)

_CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")
_MOST_STAGED: Final = 2 << 20
_MAX_INT32: Final = 2**31 - 1

PRODUCER_DEFAULTS: Final[dict[str, Any]] = {
    **NETWORK,
    "bootstrap_servers": "localhost",
    "client_id": None,
    "key_serializer": None,
    "value_serializer": None,
    "enable_idempotence": True,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "delivery_timeout_ms": 120_000,
    "acks": -1,
    "compression_type": None,
    "retries": float("inf"),
    "batch_size": 16_384,
    "linger_ms": 0,
    "partitioner": DefaultPartitioner(),
    "max_block_ms": 60_000,
    "max_request_size": 1_048_576,
    "allow_auto_create_topics": True,
    "ssl_ciphers": None,
    "metrics_enabled": True,
    "buffer_memory": 32 << 20,
}


def staged_bytes(config: Mapping[str, Any]) -> int:
    """Return the part of ``buffer_memory`` for records that the loop has not taken yet."""
    return int(min(_MOST_STAGED, config["buffer_memory"] // 4))


def sdk_options(config: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the SDK's producer; store derived values in ``config``.

    Raises:
        ValueError: the codec does not exist.
        ConfigurationError: values contradict each other.
    """
    if config["compression_type"] not in _CODECS:
        raise ValueError(f"Not supported codec: {config['compression_type']}")
    if config["acks"] == "all":
        config["acks"] = -1
    strict = bool(config["transactional_id"] or given.get("enable_idempotence"))
    if config["transactional_id"] and not config["enable_idempotence"]:
        raise ConfigurationError("Cannot set transactional_id without enable_idempotence.")
    old = config["api_version"] is not None and config["api_version"] < (0, 11)
    conflicts = [
        f"{name}={config[name]!r}"
        for name, wrong in (
            ("acks", config["acks"] != -1),
            ("retries", config["retries"] == 0),
            ("max_in_flight_requests_per_connection", config["max_in_flight_requests_per_connection"] > 5),
        )
        if wrong and name in given
    ]
    conflicts += [f"api_version={config['api_version']}"] if old else []
    if config["enable_idempotence"] and conflicts:
        if strict:
            raise ConfigurationError(
                f"enable_idempotence=True is incompatible with user-provided {', '.join(conflicts)}"
            )
        log.warning("Idempotence will be disabled because of user-provided %s", ", ".join(conflicts))
        config["enable_idempotence"] = False
    memory = config["buffer_memory"]
    if "max_request_size" not in given:
        config["max_request_size"] = min(config["max_request_size"], memory)
    largest = max(config["max_request_size"], config["batch_size"])
    delivery = max(config["delivery_timeout_ms"], config["linger_ms"] + config["request_timeout_ms"])
    options = {
        **network_options(config),
        "enable_idempotence": config["enable_idempotence"],
        "transactional_id": config["transactional_id"] or None,
        "transaction_timeout_ms": config["transaction_timeout_ms"],
        "acks": config["acks"],
        "compression_type": config["compression_type"] or "none",
        "retries": min(config["retries"], _MAX_INT32),
        "batch_size": config["batch_size"],
        "linger_ms": config["linger_ms"],
        "max_request_size": config["max_request_size"],
        "max_in_flight_requests_per_connection": config["max_in_flight_requests_per_connection"],
        "allow_auto_create_topics": config["allow_auto_create_topics"],
        "delivery_timeout_ms": delivery,
        # for records that the loop has taken; send itself waits at most the user's max_block_ms
        "max_block_ms": delivery,
        "buffer_memory": max(memory - staged_bytes(config), min(memory, largest)),
        "close_timeout_ms": 0,  # the flush before it has its own timeout
    }
    return options
