"""Named sets of option defaults (option ``defaults``).

``kafka-4`` has the defaults of the tables in `config`. ``kafka-0.10`` has the defaults that the first books about Kafka
describe: at most one attempt, the leader's acknowledgement, no linger. Each set lists only its differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_CLIENT_0_10: Final[Mapping[str, Any]] = {
    "metadata_recovery_strategy": "none",
    "reconnect_backoff_max_ms": 50,
    "retry_backoff_max_ms": 100,
}

PRODUCER: Final[Mapping[str, Mapping[str, Any]]] = {
    "kafka-4": {},
    "kafka-0.10": {
        **_CLIENT_0_10,
        "acks": 1,
        "enable_idempotence": False,
        "linger_ms": 0,
        "retries": 0,
        # Kafka 0.10 had no such option: request.timeout.ms bounded the time in the queue.
        "delivery_timeout_ms": 30_000,
    },
}

CONSUMER: Final[Mapping[str, Mapping[str, Any]]] = {
    "kafka-4": {},
    "kafka-0.10": {
        **_CLIENT_0_10,
        "max_poll_records": 2**31 - 1,
        "partition_assignment_strategy": ("range",),
        "request_timeout_ms": 40_000,
        "session_timeout_ms": 30_000,
    },
}
