"""The sticky assignor."""

from __future__ import annotations

from typing import ClassVar

from triokafka.asyncio.coordinator.assignors.abstract import AbstractPartitionAssignor


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Stands for the SDK's sticky assignor."""

    name: ClassVar[str] = "sticky"
