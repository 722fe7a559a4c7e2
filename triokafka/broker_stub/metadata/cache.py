"""A broker's metadata cache: its own newest image of the cluster, which may lag behind the controller's."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage


class MetadataCache:
    """The newest committed image that this broker has applied.

    A reader takes ``image`` once and uses it for a whole operation. `update` is a subscriber of the broker's
    `MetadataPublisher`, and the first of them: the others may read the cache.

    Args:
        kraft_version: returns the level of ``kraft.version``, which the metadata log has in control records.
    """

    def __init__(self, kraft_version: Callable[[], int] = lambda: 0) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._kraft_version = kraft_version

    def update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Replace the image by a newer one."""
        self.image = image

    @property
    def finalized_features(self) -> dict[str, int]:
        """The feature levels that ApiVersions reports."""
        return features.finalized(self.image, self._kraft_version())
