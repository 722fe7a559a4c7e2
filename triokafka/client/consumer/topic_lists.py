"""Topic names and partition numbers for the user, directly from a broker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic

logger = logging.getLogger(__name__)

_FIRST_WITHOUT_CREATION: Final = 4


class TopicLists:
    """Looks up topics for the user.

    If a broker does not answer, or cannot yet, the lookup retries, or asks another broker.
    """

    def __init__(self, options: ConsumerOptions, network: NetworkClient) -> None:
        self._network = network
        self._world = network.world
        self._request_timeout = options.request_timeout_ms / 1000
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)

    async def look_up(self, topics: Sequence[str] | None, *, deadline: float) -> dict[str, list[int]]:
        """Return the partition numbers of topics, of all if None, directly from a broker. Creates no topic.

        Raises:
            KafkaTimeoutError: no response in time; names the last error.
            TopicAuthorizationFailedError, InvalidTopicError: the broker refused.
        """
        what = "the list of topics" if topics is None else f"the partitions of topic {', '.join(map(repr, topics))}"
        failures = 0
        last: errors.KafkaError | None = None
        with trio.move_on_after(max(0.0, deadline - self._world.now())):
            while True:
                # The error of the request's own timeout is more specific than the deadline's.
                limit = min(self._request_timeout, max(0.0, deadline - self._world.now()))
                try:
                    return await self._ask(topics, limit * 1000)
                except errors.KafkaError as error:
                    if isinstance(error, errors.RebootstrapRequiredError):
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
        raise errors.KafkaTimeoutError(f"no answer in time about {what}; {why}") from last

    async def _ask(self, topics: Sequence[str] | None, timeout_ms: float) -> dict[str, list[int]]:
        def build(version: int) -> MetadataRequest:
            named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
            if version == 0 and named is None:
                named = []
            return MetadataRequest(topics=named, allow_auto_topic_creation=version < _FIRST_WITHOUT_CREATION)

        response = await self._network.send_to_least_loaded(build, api=MetadataRequest, timeout_ms=timeout_ms)
        if response.error_code:
            error = errors.for_code(response.error_code)
            raise error(f"the broker did not list its topics: {errors.in_words(error)}. {error.advice}".rstrip())
        found: dict[str, list[int]] = {}
        for topic in response.topics:
            if topic.error_code and topic.error_code != errors.UnknownTopicOrPartitionError.code:
                error = errors.for_code(topic.error_code)
                if topics is not None or not error.retriable:
                    raise error(f"topic {topic.name!r}: {errors.in_words(error)}. {error.advice}".rstrip())
            elif topic.name is not None and not topic.error_code:
                found[topic.name] = sorted(partition.partition_index for partition in topic.partitions)
        return found
