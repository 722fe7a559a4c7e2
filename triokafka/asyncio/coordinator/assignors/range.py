"""The range assignor."""

from __future__ import annotations

from typing import ClassVar

from triokafka.asyncio.coordinator.assignors.abstract import AbstractPartitionAssignor


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Stands for the SDK's range assignor."""

    name: ClassVar[str] = "range"
