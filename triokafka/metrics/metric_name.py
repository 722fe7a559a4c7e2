"""The name of a metric: name, group and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NO_TAGS: Final[Mapping[str, str]] = {}


class MetricName:
    """The identity of a metric. Two names are equal if name, group and tags are; the description does not count.

    Args:
        name: Kafka's name, for example ``record-send-rate``.
        group: Kafka's group, for example ``producer-metrics``: the type of the MBean.
        description: one sentence for people.
        tags: for example ``{"client-id": "billing"}``.
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    def __init__(self, name: str, group: str, description: str = "", tags: Mapping[str, str] = _NO_TAGS) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: Mapping[str, str] = dict(tags)
        self._hash = hash((name, group, frozenset(self.tags.items())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricName):
            return NotImplemented
        return self.name == other.name and self.group == other.group and self.tags == other.tags

    def __repr__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags.items() if key and value)
        return f"{self.group}:{self.name}{tags}"

    def object_name(self, prefix: str) -> str:
        """Return the name of the MBean under which Kafka shows this metric: ``prefix:type=group,tag=value``."""
        return f"{prefix}:type={self.group}" + "".join(f",{k}={v}" for k, v in self.tags.items() if k and v)
