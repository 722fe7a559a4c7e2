"""The name of ``kafka.coordinator.assignors.roundrobin``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Assigns the partitions of all topics in turn."""

    name: ClassVar[str] = "roundrobin"
