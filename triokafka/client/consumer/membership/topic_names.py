"""Names of topics that the coordinator identifies by id: from the metadata, or from a lookup by id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import trio

from triokafka.backoff import Backoff
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.errors import KafkaError, UnknownTopicIdError, for_code
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.structs import first_names

logger = logging.getLogger(__name__)

_FIRST_BY_ID: Final = 12
_WHAT: Final = "looking up the names of assigned topics"


class TopicNames:
    """Maps topic ids to names. Calls ``on_found`` when a lookup in the background has found a name."""

    def __init__(
        self,
        network: NetworkClient,
        backoff: Backoff,
        tasks: BackgroundTasks,
        failures: FailureTracker,
        on_found: Callable[[], None],
    ) -> None:
        self._network = network
        self._backoff = backoff
        self._tasks = tasks
        self._failures = failures
        self._on_found = on_found
        self._names: dict[UUID, str] = {}
        self._missing: tuple[UUID, ...] = ()
        self._scope: trio.CancelScope | None = None

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None while it is unknown. A known name never changes: topics cannot be
        renamed."""
        name = self._names.get(topic_id)
        if name is None:
            name = self._network.cluster.topic_names.get(topic_id)
            if name is not None:
                self._names[topic_id] = name
        return name

    def look_up(self, missing: Iterable[UUID]) -> None:
        """Look up exactly these names in the background; without any, stop the lookup."""
        self._missing = tuple(sorted(missing))
        if self._missing and self._scope is None:
            self._scope = trio.CancelScope()
            self._tasks.start(self._search, self._scope, name="kafka topic names")
        elif not self._missing and self._scope is not None:
            self._scope.cancel()
            self._scope = None
            self._failures.succeeded(_WHAT)

    async def _search(self, scope: trio.CancelScope) -> None:
        world = self._network.world
        failures = 0
        with scope:
            while self._missing:
                failures += 1
                try:
                    if await self._ask(self._missing):
                        self._on_found()
                        failures = 0
                    if not self._missing:
                        break
                    # Not every broker knows a topic that was just created.
                    error: KafkaError = UnknownTopicIdError(first_names(self._missing))
                except KafkaError as failed:
                    error = failed
                self._failures.failed(_WHAT, error, world.now(), quietly=True)
                logger.debug("%s failed, trying again: %s", _WHAT, error)
                await trio.sleep(self._backoff.delay(failures, world.random.random()))
        if self._scope is scope:
            self._scope = None
            self._failures.succeeded(_WHAT)

    async def _ask(self, missing: tuple[UUID, ...]) -> bool:
        """Query a broker; return whether its response contained a new name."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing],
            allow_auto_topic_creation=False,
        )
        response = await self._network.send_to_least_loaded(request, min_version=_FIRST_BY_ID)
        found = False
        for topic in response.topics:
            if topic.error_code:
                logger.debug("topic id %s: %s", topic.topic_id, for_code(topic.error_code).__name__)
            elif topic.name is not None:
                self._names[topic.topic_id] = topic.name
                found = True
        self._missing = tuple(topic_id for topic_id in self._missing if topic_id not in self._names)
        return found
