"""How the sender sends single batches of one partition."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from triokafka.network.cluster import Cluster
from triokafka.protocol.templates import RequestTemplate


class Route:
    """A request template for one partition, valid until its metadata or the broker's API versions change."""

    __slots__ = ("api_versions", "cluster", "ids", "template")

    def __init__(self, template: RequestTemplate, ids: Mapping[str, uuid.UUID]) -> None:
        self.template = template
        self.ids = ids
        self.cluster: Cluster | None = None
        self.api_versions: object = None
