"""The name of ``kafka.coordinator.assignors.sticky.sticky_assignor``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Even, and as much as possible as it was before."""

    name: ClassVar[str] = "sticky"
