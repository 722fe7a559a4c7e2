"""Automatic topic creation: for topics that a client names in Metadata, and for the broker's internal topics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from triokafka import errors, topic_names
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.image import TopicImage
from triokafka.broker_stub.metadata.mutation_charge import MutationCharge, no_charge
from triokafka.broker_stub.work_budget import in_portions
from triokafka.structs import first_names

if TYPE_CHECKING:
    from triokafka.protocol.api.create_topics import CreatableTopic

logger = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000


class AutoTopicCreation:
    """Creates missing topics through the controller."""

    def __init__(
        self,
        gateway: ControllerGateway,
        config: BrokerConfig,
        metadata: MetadataCache,
        coordinators: CoordinatorRegistry,
    ) -> None:
        self._gateway = gateway
        self._coordinators = coordinators
        self._config = config
        self._metadata = metadata

    def name_error(self, name: str) -> int:
        """Return the error code of an invalid topic name, or 0."""
        try:
            topic_names.validate(name)
        except errors.InvalidTopicError as error:
            return error.code
        return 0

    @property
    def is_enabled(self) -> bool:
        """Whether a Metadata request for an unknown topic creates it (``auto.create.topics.enable``)."""
        return self._config.auto_create_topics_enable

    async def create_missing(self, names: Sequence[str], *, charge: MutationCharge = no_charge) -> set[str]:
        """Create topics, and return the names of those that exist now.

        The log contains failures with reasons; the client only learns that a topic is unknown.
        """
        from triokafka.protocol.api.create_topics import CreateTopicsRequest

        topics = [self._describe(name) async for name in in_portions(dict.fromkeys(names)) if not self.name_error(name)]
        if not topics:
            return set()
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
        try:
            response = await self._gateway.create_topics(request, charge=charge)
        except errors.KafkaError as error:
            named = first_names([topic.name for topic in topics])
            logger.info("automatic creation of topics %s failed: %s", named, error)
            return set()
        existing: set[str] = set()
        for topic in response.topics:
            if topic.error_code in (0, errors.TopicAlreadyExistsError.code):
                existing.add(topic.name)
                continue
            kind = errors.for_code(topic.error_code).__name__
            why = f"{kind}: {topic.error_message}"
            logger.info("automatic creation of topic %r failed: %s", topic.name, why)
        return existing

    async def ensure(self, name: str) -> TopicImage:
        """Return an internal topic, and create it if it is missing.

        Raises:
            CoordinatorNotAvailableError: the topic could not be created now.
        """
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            await self.create_missing([name])
            topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise errors.CoordinatorNotAvailableError(f"the topic {name} could not be created yet")
        return topic

    def _describe(self, name: str) -> CreatableTopic:
        from triokafka.protocol.api.create_topics import CreatableTopic, CreatableTopicConfig

        config, entry = self._config, self._coordinators.for_topic(name)
        if entry is None:
            return CreatableTopic(
                name=name,
                num_partitions=config.num_partitions,
                replication_factor=config.default_replication_factor,
            )
        settings = entry.topic
        return CreatableTopic(
            name=name,
            num_partitions=settings.num_partitions,
            replication_factor=min(settings.replication_factor, max(len(self._metadata.image.brokers), 1)),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.configs.items()],
        )
