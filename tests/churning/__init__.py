"""Groups whose members join, leave, die and freeze: processes of all clients, a schedule, an observer."""

from __future__ import annotations

from typing import Final

SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}
"""The broker's configuration, so that deaths are noticed soon."""
