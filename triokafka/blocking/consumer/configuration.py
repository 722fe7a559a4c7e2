"""The configuration of `KafkaConsumer`, and its translation into options of the SDK's consumer.

kafka-python has neither ``max_poll_bytes`` nor ``max_decompressed_batch_bytes``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import triokafka
from triokafka.assignors.compatible import sdk_assignor
from triokafka.blocking.coordinator.assignors.range import RangePartitionAssignor
from triokafka.blocking.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from triokafka.blocking.options import NETWORK, network_options
from triokafka.errors import ConfigurationError

log = logging.getLogger(__name__)

_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_A_DAY_MS: Final = 86_400_000

CONSUMER_DEFAULTS: Final[dict[str, Any]] = {
    **NETWORK,
    "bootstrap_servers": "localhost",
    "client_id": f"triokafka-{triokafka.__version__}",
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52_428_800,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "default_offset_commit_callback": lambda offsets, response: True,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "allow_auto_create_topics": True,
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
    "max_poll_records": 500,
    "max_poll_bytes": 64 << 20,
    "max_decompressed_batch_bytes": 128 << 20,
    "max_poll_interval_ms": 300_000,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "consumer_timeout_ms": float("inf"),
    "ssl_ciphers": None,
    "metrics_enabled": True,
    "metric_group_prefix": "consumer",
    "exclude_internal_topics": True,
}

_TAKEN_AS_THEY_ARE: Final = (
    "client_rack",
    "group_id",
    "group_instance_id",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "check_crcs",
    "allow_auto_create_topics",
    "max_poll_records",
    "max_poll_bytes",
    "max_decompressed_batch_bytes",
    "max_poll_interval_ms",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "exclude_internal_topics",
)


def sdk_options(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the SDK's consumer; store derived values in ``config``.

    Raises:
        ConfigurationError: a value is invalid, or values contradict each other.
    """
    _check(config)
    reset = config["auto_offset_reset"]
    if reset in _OLD_RESETS:
        log.warning("use auto_offset_reset=%s (%s is deprecated)", _OLD_RESETS[reset], reset)
        reset = config["auto_offset_reset"] = _OLD_RESETS[reset]
    most = config["fetch_max_bytes"] + config["max_partition_fetch_bytes"]
    config["receive_message_max_bytes"] = max(config["receive_message_max_bytes"], most)
    isolation = config["isolation_level"]
    return {
        **network_options(config),
        **{name: config[name] for name in _TAKEN_AS_THEY_ARE},
        "auto_offset_reset": reset if reset in ("earliest", "latest") else "none",
        "isolation_level": isolation if isinstance(isolation, str) else isolation.name.lower(),
        "partition_assignment_strategy": [sdk_assignor(one) for one in config["partition_assignment_strategy"]],
        "enable_auto_commit": False,  # the session commits
        "close_timeout_ms": config["request_timeout_ms"],
        # A poll that reaches no broker returns no records, however long the brokers stay away.
        "default_api_timeout_ms": _A_DAY_MS,
    }


def _check(config: Mapping[str, Any]) -> None:
    idle, request, wait = (
        config[name] for name in ("connections_max_idle_ms", "request_timeout_ms", "fetch_max_wait_ms")
    )
    if not wait < request < idle:
        raise ConfigurationError(
            f"connections_max_idle_ms ({idle}) must be larger than request_timeout_ms ({request}) which must be larger"
            f" than fetch_max_wait_ms ({wait})."
        )
    instance = config["group_instance_id"]
    if instance is None:
        return
    if config["group_id"] is None:
        raise ConfigurationError("group_instance_id requires group_id")
    if not isinstance(instance, str) or not _INSTANCE_ID.fullmatch(instance) or instance in (".", ".."):
        raise ConfigurationError(
            f"group_instance_id={instance!r} is not 1 to 249 of ASCII letters, digits, '.', '_', '-'"
        )
