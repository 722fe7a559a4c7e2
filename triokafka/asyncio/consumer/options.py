"""The options of `AIOKafkaConsumer` as options of the SDK's consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from triokafka.assignors.compatible import sdk_assignor

logger = logging.getLogger(__name__)

_A_DAY_MS: Final = 86_400_000
_HEARTBEATS: Final = 3
"""In a session that is too short for the interval that the program has set."""
_AS_THEY_ARE: Final = (
    "group_id",
    "group_instance_id",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "check_crcs",
    "session_timeout_ms",
    "exclude_internal_topics",
    "isolation_level",
)


def sdk_options(network: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the SDK's consumer whose constructor has the arguments ``given``, by name.

    The session polls until the program has been idle for long, so the SDK's ``max_poll_interval_ms`` only bounds how
    long a rebalance waits for this member: it is aiokafka's ``rebalance_timeout_ms``, which is ``session_timeout_ms``
    by default; at most half of ``max_poll_interval_ms``, within which an idle member has to leave.
    """
    rebalance = given["rebalance_timeout_ms"]
    patience = given["session_timeout_ms"] if rebalance is None else rebalance
    return {
        **network,
        **{name: given[name] for name in _AS_THEY_ARE},
        "auto_offset_reset": _reset_policy(given["auto_offset_reset"]),
        "heartbeat_interval_ms": _heartbeat_interval_ms(given["heartbeat_interval_ms"], given["session_timeout_ms"]),
        "client_rack": given["client_rack"] or "",
        "partition_assignment_strategy": [sdk_assignor(one) for one in given["partition_assignment_strategy"]],
        "max_poll_interval_ms": min(patience, max(1, given["max_poll_interval_ms"] // 2)),
        "enable_auto_commit": False,  # the session commits what the program got
        # A call that reaches no broker waits, however long the brokers stay away.
        "default_api_timeout_ms": _A_DAY_MS,
    }


def _reset_policy(name: str) -> str:
    """Return the SDK's name of an ``auto_offset_reset``; as in aiokafka, an unknown one stands for "none"."""
    policy = name.lower()
    if policy in ("latest", "earliest", "none"):
        return policy
    logger.warning("auto_offset_reset=%r is unknown: 'none' is used. Choose 'latest', 'earliest' or 'none'", name)
    return "none"


def _heartbeat_interval_ms(interval_ms: float, session_timeout_ms: float) -> float:
    """Return an interval that the SDK accepts: aiokafka leaves it to the broker to refuse a short session."""
    return interval_ms if interval_ms < session_timeout_ms else session_timeout_ms / _HEARTBEATS
