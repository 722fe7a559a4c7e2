"""Publishing committed metadata to the subscribers of a node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Receives every committed change in order: the delta and the resulting image."""

Preparation = Callable[[MetadataDelta, MetadataImage], Iterator[int]]
"""Does most of a subscriber's work on a large change beforehand, in steps; yields the amount of work of each step.

The change may not be published after all. Until it is, the subscriber answers by the change before it.
"""


class MetadataFollower(Protocol):
    """Follows changes with work that is too slow for the event loop. Raises nothing."""

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Prepare for a committed change that is about to be published."""

    async def settle(self) -> None:
        """Finish the work on published changes, whose answers wait for it."""


class MetadataPublisher:
    """Calls its subscribers with every committed change of the metadata, in the order of the log.

    ``image`` is the image published last, None before the first. ``failures`` counts the subscribers that failed.
    """

    def __init__(self) -> None:
        self.image: MetadataImage | None = None
        self.failures = 0
        self._subscribers: list[Subscriber] = []
        self._preparations: list[Preparation] = []

    def subscribe(self, subscriber: Subscriber, *, preparation: Preparation | None = None) -> None:
        """Call ``subscriber`` with every change from now on; first with the current image, as a delta from the empty
        image.

        Changes that this node has not made itself go through ``preparation`` before.
        """
        self._subscribers.append(subscriber)
        if preparation is not None:
            self._preparations.append(preparation)
        if self.image is not None:
            self._call(subscriber, MetadataDelta.from_nothing(self.image), self.image)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop calling ``subscriber``; do nothing if it never subscribed."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def prepare(self, delta: MetadataDelta, image: MetadataImage) -> Generator[int, None, None]:
        """Prepare subscribers for a committed change that is about to be published; yield the work of each step."""
        for preparation in self._preparations:
            yield from preparation(delta, image)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Call every subscriber with a committed change. A failing subscriber does not affect the others."""
        self.image = image
        for subscriber in self._subscribers:
            self._call(subscriber, delta, image)

    def _call(self, subscriber: Subscriber, delta: MetadataDelta, image: MetadataImage) -> None:
        try:
            subscriber(delta, image)
        except Exception:
            # The change is committed, so a subscriber cannot reject it.
            self.failures += 1
            logger.exception("%r failed to apply the metadata at offset %d", subscriber, image.offset)
