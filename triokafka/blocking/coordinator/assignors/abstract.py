"""Base of ``kafka.coordinator.assignors``: classes that stand for the SDK's assignors."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class RebalanceProtocol(IntEnum):
    """Whether members revoke all partitions before a rebalance, or only those that move (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class AbstractPartitionAssignor:
    """Stands for one of the SDK's assignors by its protocol name. Both the class and its instances are accepted."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 0

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the rebalance protocol of this assignor."""
        return [RebalanceProtocol.EAGER]
