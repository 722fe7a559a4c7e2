"""The name of ``kafka.coordinator.assignors.cooperative_sticky``."""

from __future__ import annotations

from typing import ClassVar

from triokafka.blocking.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """As the sticky one, and members keep what stays with them during a rebalance (KIP-429)."""

    name: ClassVar[str] = "cooperative-sticky"

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """How members give back: only what goes to others, if all can."""
        return [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]
