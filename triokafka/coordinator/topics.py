"""What the coordinator needs to know about topics, as the broker provides it from its metadata image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias
from uuid import UUID

TopicFilter: TypeAlias = Callable[[str], bool]
"""Whether the client that asks may do what it asks with a topic, by name."""


def any_topic(name: str) -> bool:
    """No restriction."""
    return True


class TopicsView(Protocol):
    """Topic names and ids, both ways, and sizes, as of now."""

    @property
    def version(self) -> int:
        """Another number whenever any topic has changed."""

    def topic_id(self, name: str) -> UUID | None:
        """The id of a topic; None when there is no such topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic; None when there is no such topic."""

    def names(self) -> Iterable[str]:
        """Every topic."""

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
