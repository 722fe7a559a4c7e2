"""The base of aiokafka's assignors: classes that stand for the SDK's assignors."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from triokafka import PartitionAssignor
from triokafka.errors import ConfigurationError

_BUILT_IN: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


class AbstractPartitionAssignor:
    """Stands for one of the SDK's assignors by its protocol name. Both the class and its instances are accepted."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 0


def sdk_assignor(given: Any) -> Any:
    """Return the SDK's assignor for an element of ``partition_assignment_strategy``.

    Raises:
        ConfigurationError: a custom assignor with aiokafka's interface.
    """
    made = given() if isinstance(given, type) else given
    if isinstance(made, (str, PartitionAssignor)):
        return made
    name = getattr(made, "name", None)
    if name in _BUILT_IN:
        return name
    raise ConfigurationError(
        f"{given!r} is not one of {', '.join(sorted(_BUILT_IN))}: derive a custom assignor from"
        " triokafka.PartitionAssignor"
    )
