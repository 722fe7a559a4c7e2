"""The name of ``kafka.coordinator.assignors.sticky.sticky_assignor``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Balanced, and as close as possible to the previous assignment."""

    name: ClassVar[str] = "sticky"
