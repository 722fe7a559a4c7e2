"""Values of ``partition_assignment_strategy`` for programs of kafka-python and aiokafka."""

from __future__ import annotations

from typing import Any

from triokafka.assignors.assignor import PartitionAssignor
from triokafka.assignors.strategies import BUILT_IN
from triokafka.errors import ConfigurationError


def sdk_assignor(given: Any) -> Any:
    """Return the SDK's assignor for an element of ``partition_assignment_strategy``.

    Raises:
        ConfigurationError: a custom assignor with the interface of kafka-python or aiokafka.
    """
    made = given() if isinstance(given, type) else given
    if isinstance(made, (str, PartitionAssignor)):
        return made
    name = getattr(made, "name", None)
    if name in BUILT_IN:
        return name
    raise ConfigurationError(
        f"{given!r} is not one of {', '.join(sorted(BUILT_IN))}: derive a custom assignor from"
        " triokafka.PartitionAssignor"
    )
