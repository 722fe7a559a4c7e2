"""The roundrobin assignor."""

from __future__ import annotations

from typing import ClassVar

from triokafka.asyncio.coordinator.assignors.abstract import AbstractPartitionAssignor


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Stands for the SDK's roundrobin assignor."""

    name: ClassVar[str] = "roundrobin"
