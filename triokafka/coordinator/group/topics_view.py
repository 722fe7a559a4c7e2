"""The topic metadata that the coordinator needs; the broker implements it on its metadata image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias
from uuid import UUID

TopicFilter: TypeAlias = Callable[[str], bool]
"""Whether the client of a request may perform its operation on the topic of this name."""


def any_topic(name: str) -> bool:
    """Allow every topic."""
    return True


class TopicsView(Protocol):
    """The current names, ids and partition counts of topics."""

    @property
    def version(self) -> int:
        """A number that changes whenever any topic changes."""

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None when it does not exist."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None when it does not exist."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 when it does not exist."""
