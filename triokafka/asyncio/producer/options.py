"""The options of `AIOKafkaProducer` as options of the SDK's producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MISSING: Final = object()
"""The default of ``acks``: 1, or all with ``enable_idempotence``."""
_BATCHES_IN_MEMORY: Final = 2048
"""The SDK's ``buffer_memory`` in batches of ``max_batch_size``: 32 MiB with aiokafka's default."""


def check_options(given: Mapping[str, Any]) -> None:
    """Check the arguments of a constructor, by name.

    Raises:
        ValueError: ``acks`` or ``compression_type`` is unknown, or idempotence forbids ``acks``.
    """
    acks = given["acks"]
    if acks not in (0, 1, -1, "all", MISSING):
        raise ValueError("Invalid ACKS parameter")
    if given["compression_type"] not in ("gzip", "snappy", "lz4", "zstd", None):
        raise ValueError("Invalid compression type!")
    if _is_idempotent(given) and acks not in ("all", -1, MISSING):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")


def sdk_options(network: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the SDK's producer whose constructor has the arguments ``given``, by name."""
    acks, is_idempotent = given["acks"], _is_idempotent(given)
    if acks is MISSING:
        acks = -1 if is_idempotent else 1
    options = {
        **network,
        "acks": -1 if acks == "all" else acks,
        "enable_idempotence": is_idempotent,
        "compression_type": given["compression_type"] or "none",
        "batch_size": given["max_batch_size"],
        "buffer_memory": max(_BATCHES_IN_MEMORY * given["max_batch_size"], 2 * given["max_request_size"]),
        "linger_ms": given["linger_ms"],
        "max_request_size": given["max_request_size"],
        "max_block_ms": given["request_timeout_ms"],
        "delivery_timeout_ms": given["request_timeout_ms"] + given["linger_ms"],
    }
    if given["transactional_id"] is not None:
        options["transactional_id"] = given["transactional_id"]
        options["transaction_timeout_ms"] = given["transaction_timeout_ms"]
    return options


def _is_idempotent(given: Mapping[str, Any]) -> bool:
    return given["transactional_id"] is not None or bool(given["enable_idempotence"])
