"""Checks of configuration resources by brokers and the controller, before a change or a description."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from triokafka.errors import InvalidRequestError
from triokafka.protocol.configuration import ConfigResourceType

_BROKER_ID: Final = re.compile(r"[+-]?[0-9]{1,10}")


def check_repeats(times: int, names: Sequence[str]) -> None:
    """Reject a resource that a request names several times, or whose keys repeat. Raises `InvalidRequestError`."""
    if times > 1:
        raise InvalidRequestError("Each resource must appear at most once.")
    if len(set(names)) < len(names):
        raise InvalidRequestError("Error due to duplicate config keys")


def check_broker_name(name: str, node_id: int | None = None) -> None:
    """Reject a name that is not a broker's id, and the resource of another broker than ``node_id``.

    A broker describes and alters only itself; the controller, without ``node_id``, alters any broker.

    Raises:
        InvalidRequestError: the name is of neither.
    """
    if not _BROKER_ID.fullmatch(name):
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}")
    if node_id is not None and int(name) != node_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {node_id}, but received {name}")


def not_configurable(resource_type: int) -> InvalidRequestError:
    """Return the error for a resource type that has no configuration."""
    try:
        name = ConfigResourceType(resource_type).name.lower().replace("_", " ")
    except ValueError:
        return InvalidRequestError(f"Unknown resource type {resource_type}")
    return InvalidRequestError(f"Unknown resource type {resource_type}: a {name} has no configuration here")
