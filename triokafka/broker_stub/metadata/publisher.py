"""Publishes committed metadata to the parts of a node that follow it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Receives every committed change, in order: what changed, and the image that it leads to."""


class MetadataPublisher:
    """Calls its subscribers with every committed change of the metadata, in the order of the log.

    ``image`` is the image published last, None before the first.
    """

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` with every change from now on; first with the image of now, as a change from nothing."""
        self._subscribers.append(subscriber)
        if self.image is not None:
            _call(subscriber, MetadataDelta.from_nothing(self.image), self.image)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Call ``subscriber`` no more. One that never subscribed is fine."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Hand a committed change to every subscriber. A subscriber that fails does not keep it from the others."""
        self.image = image
        for subscriber in self._subscribers:
            _call(subscriber, delta, image)


def _call(subscriber: Subscriber, delta: MetadataDelta, image: MetadataImage) -> None:
    try:
        subscriber(delta, image)
    except Exception:
        # The change is committed: a subscriber cannot refuse it.
        logger.exception("%r failed to apply the metadata at offset %d", subscriber, image.offset)
