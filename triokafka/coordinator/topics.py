"""What the coordinator needs to know about topics, as the broker provides it from its metadata image."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class TopicsView(Protocol):
    """Topic names and ids, both ways, as of now."""

    def topic_id(self, name: str) -> UUID | None:
        """The id of a topic; None when there is no such topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic; None when there is no such topic."""
