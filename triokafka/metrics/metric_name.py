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

    def __lt__(self, other: MetricName) -> bool:
        return (self.group, sorted(self.tags.items()), self.name) < (
            other.group,
            sorted(other.tags.items()),
            other.name,
        )

    def __repr__(self) -> str:
        tags = "".join(f",{key}={value}" for key, value in self.tags.items() if key and value)
        return f"{self.group}:{self.name}{tags}"

    def group_in_python(self) -> str:
        """Return the group as kafka-python names it: with node, topic and partition behind a dot."""
        parts = [self.tags.get("node-id"), self.tags.get("topic")]
        if (partition := self.tags.get("partition")) is not None:
            parts[-1] = f"{parts[-1]}-{partition}"
        return ".".join([self.group, *(part for part in parts if part is not None)])

    def object_name(self, prefix: str) -> str:
        """Return the name of the MBean under which Kafka shows this metric: ``prefix:type=group,tag=value``."""
        return f"{prefix}:type={self.group}" + "".join(f",{k}={v}" for k, v in self.tags.items() if k and v)
