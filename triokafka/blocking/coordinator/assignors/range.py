"""The name of ``kafka.coordinator.assignors.range``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns contiguous ranges of each topic's partitions."""

    name: ClassVar[str] = "range"
