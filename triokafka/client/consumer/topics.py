"""What the cluster says about topics: those that a consumer subscribes to and cannot read, and lists for the user."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.subscription import Mode, SubscriptionState
from triokafka.client.consumer.trouble import Troubles
from triokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    RebootstrapRequiredError,
    UnknownTopicOrPartitionError,
    for_code,
)
from triokafka.network.backoff import Backoff
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic

logger = logging.getLogger(__name__)

_FIRST_WITHOUT_CREATION: Final = 4


class TopicWatch:
    """Notices topics subscribed to by name that the cluster refuses, or does not have."""

    def __init__(self, network: NetworkClient, subscription: SubscriptionState, troubles: Troubles) -> None:
        self._network = network
        self._subscription = subscription
        self._troubles = troubles
        self._missing: tuple[str, ...] = ()
        self._error: KafkaError | None = None
        self._ids: dict[str, tuple[UUID, ...]] = {}
        """Those of the assigned topics, the former ones first."""

    def take_error(self) -> KafkaError | None:
        """Which topic may not be read, once for each time that the metadata says so."""
        error, self._error = self._error, None
        return error

    def look_at(self, cluster: Cluster) -> None:
        """The metadata is new."""
        for what in self._missing:
            if what not in self._subscription.topics or what in cluster.topics:
                self._troubles.succeeded(f"finding topic {what!r}")
        self._missing = ()
        if self._subscription.mode is not Mode.TOPICS:
            return
        topics = self._subscription.topics
        others = any(topic in cluster.topics for topic in topics)
        for topic in topics:
            error = self._network.metadata.error_for(topic) if topic not in cluster.topics else None
            if error is None:
                continue
            if not error.retriable:
                self._error = type(error)(f"{error}. {error.advice}".rstrip())
                continue
            self._missing += (topic,)
            # With other topics to read, a missing one may well be created later.
            why = type(error)(f"the cluster does not have it. {error.advice}".rstrip())
            self._troubles.failed(f"finding topic {topic!r}", why, self._network.world.now(), quietly=others)

    def made_anew(self, cluster: Cluster) -> list[str]:
        """Topics that were deleted and made again since their partitions were assigned: positions in what they were
        mean nothing in what they are. To be asked whenever the metadata or the assignment has changed."""
        before, self._ids = self._ids, {}
        found = []
        for topic in {partition.topic: None for partition in self._subscription.assignment}:
            ids = before.get(topic, ())
            known = cluster.topics.get(topic)
            # A broker that is behind may still tell of a former one.
            if known is not None and known.topic_id.int and known.topic_id not in ids:
                if ids:
                    found.append(topic)
                ids += (known.topic_id,)
            if ids:
                self._ids[topic] = ids
        return found


class TopicLists:
    """Lists of topics for the user. A broker that does not answer, or cannot yet, is asked again, or another is."""

    def __init__(self, options: ConsumerOptions, network: NetworkClient) -> None:
        self._network = network
        self._world = network.world
        self._request_timeout = options.request_timeout_ms / 1000
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)

    async def look_up(self, topics: Sequence[str] | None, *, deadline: float) -> dict[str, list[int]]:
        """Partition numbers of topics, all if None, straight from a broker; makes none.

        Raises:
            KafkaTimeoutError: no answer in time; says the last error.
            TopicAuthorizationFailedError, InvalidTopicError: as a broker says.
        """
        what = "the list of topics" if topics is None else f"the partitions of topic {', '.join(map(repr, topics))}"
        failures = 0
        last: KafkaError | None = None
        with trio.move_on_after(max(0.0, deadline - self._world.now())):
            while True:
                # A request's own limit says more of what was waited for.
                limit = min(self._request_timeout, max(0.0, deadline - self._world.now()))
                try:
                    return await self._ask(topics, limit * 1000)
                except KafkaError as error:
                    if isinstance(error, RebootstrapRequiredError):
                        self._network.request_metadata_update()  # which starts over
                    elif not error.retriable:
                        raise
                    last = error
                failures += 1
                delay = self._backoff.delay(failures, self._world.random.random())
                if self._world.now() + delay >= deadline:
                    break
                logger.debug("asking for %s failed, trying again: %s", what, last)
                await trio.sleep(delay)
        why = f"last error: {last}" if last is not None else self._network.why_unreachable()
        raise KafkaTimeoutError(f"no answer in time about {what}; {why}") from last

    async def _ask(self, topics: Sequence[str] | None, timeout_ms: float) -> dict[str, list[int]]:
        def build(version: int) -> MetadataRequest:
            named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
            if version == 0 and named is None:
                named = []
            return MetadataRequest(topics=named, allow_auto_topic_creation=version < _FIRST_WITHOUT_CREATION)

        response = await self._network.send_to_least_loaded(build, api=MetadataRequest, timeout_ms=timeout_ms)
        if response.error_code:
            error = for_code(response.error_code)
            raise error(f"the broker does not tell of topics. {error.advice}".rstrip())
        found: dict[str, list[int]] = {}
        for topic in response.topics:
            if topic.error_code and topic.error_code != UnknownTopicOrPartitionError.code:
                error = for_code(topic.error_code)
                if topics is not None or not error.retriable:
                    raise error(f"topic {topic.name!r}. {error.advice}".rstrip())
            elif topic.name is not None and not topic.error_code:
                found[topic.name] = sorted(partition.partition_index for partition in topic.partitions)
        return found
