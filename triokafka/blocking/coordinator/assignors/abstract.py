"""What ``kafka.coordinator.assignors`` has in common: classes that stand for the SDK's assignors."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Final

from triokafka import PartitionAssignor
from triokafka.errors import ConfigurationError

_BUILT_IN: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class RebalanceProtocol(IntEnum):
    """Whether members give everything back before a rebalance, or only what goes to others (KIP-429)."""

    EAGER = 0
    COOPERATIVE = 1


class AbstractPartitionAssignor:
    """Names one of the SDK's assignors, by its name on the wire. Classes and objects are both taken."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 0

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """How members give back."""
        return [RebalanceProtocol.EAGER]


def sdk_assignor(given: Any) -> Any:
    """What the SDK takes for an element of ``partition_assignment_strategy``.

    Raises:
        ConfigurationError: an assignor of kafka-python's interface that is not one of its own.
    """
    made = given() if isinstance(given, type) else given
    if isinstance(made, (str, PartitionAssignor)):
        return made
    name = getattr(made, "name", None)
    if name in _BUILT_IN:
        return name
    raise ConfigurationError(
        f"{given!r} is not one of {', '.join(sorted(_BUILT_IN))}: assignors of one's own are subclasses of"
        " triokafka.PartitionAssignor here"
    )
