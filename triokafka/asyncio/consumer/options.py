"""The options of `AIOKafkaConsumer` as options of the SDK's consumer."""

from __future__ import annotations

from typing import Any, Final

from triokafka.assignors.compatible import sdk_assignor

_A_DAY_MS: Final = 86_400_000
_AS_THEY_ARE: Final = (
    "group_id",
    "group_instance_id",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "auto_offset_reset",
    "check_crcs",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "exclude_internal_topics",
    "isolation_level",
)


def sdk_options(network: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the SDK's consumer.

    The session polls until the program has been idle for long, so the SDK's ``max_poll_interval_ms`` only bounds how
    long a rebalance waits for this member: it is aiokafka's ``rebalance_timeout_ms``, which is ``session_timeout_ms``
    by default; at most half of ``max_poll_interval_ms``, within which an idle member has to leave.
    """
    rebalance = given["rebalance_timeout_ms"]
    patience = given["session_timeout_ms"] if rebalance is None else rebalance
    return {
        **network,
        **{name: given[name] for name in _AS_THEY_ARE},
        "client_rack": given["client_rack"] or "",
        "partition_assignment_strategy": [sdk_assignor(one) for one in given["partition_assignment_strategy"]],
        "max_poll_interval_ms": min(patience, max(1, given["max_poll_interval_ms"] // 2)),
        "enable_auto_commit": False,  # the session commits what the program got
        # A call that reaches no broker waits, however long the brokers stay away.
        "default_api_timeout_ms": _A_DAY_MS,
    }
