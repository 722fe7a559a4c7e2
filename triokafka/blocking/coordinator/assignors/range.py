"""The name of ``kafka.coordinator.assignors.range``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Partitions of each topic in ranges."""

    name: ClassVar[str] = "range"
