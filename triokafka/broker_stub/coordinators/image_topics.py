"""The topics of the metadata image, as the group coordinator needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from triokafka.broker_stub.metadata import MetadataImage


class ImageTopics:
    """Names, ids and sizes of the topics in the newest image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """A number that changes whenever any topic changes."""
        return self._image().offset

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None when it does not exist."""
        topic = self._image().topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None when it does not exist."""
        topic = self._image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._image().topics

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 when it does not exist."""
        topic = self._image().topics.get(name)
        return 0 if topic is None else len(topic.partitions)
