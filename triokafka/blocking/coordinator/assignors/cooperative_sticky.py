"""The name of ``kafka.coordinator.assignors.cooperative_sticky``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """As the sticky assignor, but members keep the partitions that do not move during a rebalance (KIP-429)."""

    name: ClassVar[str] = "cooperative-sticky"

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return COOPERATIVE if all members support it."""
        return [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]
