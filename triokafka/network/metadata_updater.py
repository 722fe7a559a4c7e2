"""The task that refreshes metadata, and the waits for it. `Metadata` decides when a refresh is due, and of which
topics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.network.cluster import Cluster
from triokafka.network.config import NetworkConfig
from triokafka.network.metadata import Metadata
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from triokafka.topic_names import check_topic_name
from triokafka.world import World

logger = logging.getLogger(__name__)

_FIRST_NULL_TOPICS: Final = 1
_FIRST_WITHOUT_CREATION: Final = 4
_FINAL: Final = (
    errors.ClusterAuthorizationFailedError,
    errors.MismatchedEndpointTypeError,
    errors.UnsupportedEndpointTypeError,
)
"""Errors of controllers that another attempt does not change."""


class MetadataUpdater:
    """Requests metadata when it is due, one request at a time, and wakes the waiting tasks.

    ``ask`` sends a request to any broker, with an optional lowest version. The updater calls ``on_success``, or
    ``on_failure`` with whether the broker requires a rebootstrap, before it wakes the waiting tasks. It calls
    ``on_attempt`` before and after each attempt. ``check_usable`` raises when no more metadata will come.
    """

    def __init__(
        self,
        config: NetworkConfig,
        world: World,
        *,
        ask: Callable[[Callable[[int], MetadataRequest], int | None], Awaitable[MetadataResponse]],
        check_usable: Callable[[], None],
        why_unreachable: Callable[[], str],
        on_success: Callable[[], None],
        on_failure: Callable[[bool], None],
        on_attempt: Callable[[], None],
    ) -> None:
        self.metadata = Metadata(
            max_age=config.metadata_max_age_ms / 1000,
            max_idle=config.metadata_max_idle_ms / 1000,
            backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
            chance=world.random.random,
            on_due=lambda: self._due.set(),
        )
        self._config = config
        self._world = world
        self._ask = ask
        self._check_usable = check_usable
        self._why_unreachable = why_unreachable
        self._on_success = on_success
        self._on_failure = on_failure
        self._on_attempt = on_attempt
        self._due = trio.Event()
        self._attempted = trio.Event()
        self._attempts = 0
        self._succeeded = 0
        self._asking = False

    def is_due(self, now: float) -> bool:
        """Whether a refresh is due and not in progress."""
        return not self._asking and self.metadata.time_to_next_update(now) <= 0

    def wake_waiters(self) -> None:
        """Wake the waiting tasks: an attempt ended, or there will be no more."""
        attempted, self._attempted = self._attempted, trio.Event()
        attempted.set()

    # ---------------------------------------------------------------- the task

    async def run(self) -> None:
        """Keep the metadata fresh until cancelled."""
        while True:
            wait = self.metadata.time_to_next_update(self._world.now())
            if wait > 0:
                if self._due.is_set():
                    self._due = trio.Event()
                with trio.move_on_after(wait):
                    await self._due.wait()
                continue
            self._attempts += 1
            self._asking = True
            self._on_attempt()  # requests that waited behind this one may be sent
            try:
                await self._refresh_once()
            finally:
                self._asking = False
            self.wake_waiters()
            self._on_attempt()

    async def _refresh_once(self) -> None:
        metadata = self.metadata
        topics = metadata.begin_update(self._world.now())
        may_create = self._config.allow_auto_create_topics
        spoken = 0

        def build(version: int) -> MetadataRequest:
            nonlocal spoken
            spoken = version
            named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
            if version < _FIRST_NULL_TOPICS:
                named = named or []  # in version 0 an empty list means all topics
            return MetadataRequest(topics=named, allow_auto_topic_creation=may_create)

        try:
            response = await self._ask(build, None if may_create else _FIRST_WITHOUT_CREATION)
        except errors.KafkaError as error:
            logger.debug("metadata refresh failed: %s", error)
            metadata.failed_update(self._world.now(), error)
            self._on_failure(False)
            return
        if response.error_code:
            refusal = errors.for_code(response.error_code)("the broker requested a rebootstrap")
            metadata.failed_update(self._world.now(), refusal)
            self._on_failure(True)
            return
        before = metadata.version
        for _ in metadata.update_in_steps(response, topics, self._world.now(), version=spoken):
            await trio.lowlevel.checkpoint()
        if metadata.version > before:
            self._succeeded = self._attempts
            self._on_success()

    # ---------------------------------------------------------------- waiting

    async def refresh(self, limit_ms: float) -> Cluster:
        """Refresh, and return the new snapshot, from a response to a request that was made after this call.

        Raises `KafkaTimeoutError`, and the errors of controllers that another attempt does not change.
        """
        self._check_usable()
        begun = self._attempts
        self.metadata.request_update()
        with trio.move_on_after(limit_ms / 1000):
            while self._succeeded <= begun:
                await self._attempted.wait()
                self._check_usable()
                error = self.metadata.last_error
                if isinstance(error, _FINAL):
                    raise error.fresh_copy()
            return self.metadata.cluster
        raise self._timeout(f"no metadata within {limit_ms:.0f} ms")

    async def wait_for(self, wanted: list[str], limit_ms: float, *, wait_for_creation: bool) -> Cluster:
        """Return a snapshot with all wanted topics; see `NetworkClient.metadata_for`."""
        metadata = self.metadata
        self._check_usable()
        for topic in wanted:
            check_topic_name(topic)
        now = self._world.now()
        for topic in wanted:
            metadata.use_topic(topic, now)
        missing = [topic for topic in wanted if topic not in metadata.topics]
        metadata.forget_errors(missing)
        version = metadata.version
        with trio.move_on_after(limit_ms / 1000):
            while missing:
                if not (self._asking and all(metadata.is_requested(topic) for topic in missing)):
                    metadata.request_topics(missing)
                await self._attempted.wait()
                self._check_usable()
                if metadata.version > version:
                    for topic in missing:
                        self._raise_if_final(topic, wait_for_creation)
                now = self._world.now()
                for topic in missing:
                    metadata.use_topic(topic, now)
                missing = [topic for topic in wanted if topic not in metadata.topics]
        if not missing:
            return metadata.cluster
        if metadata.version > version and metadata.last_error is None:
            said = [error for topic in missing if (error := metadata.error_for(topic)) is not None]
            for topic in missing:
                metadata.forget_topic(topic)
            if said and not isinstance(said[0], errors.UnknownTopicOrPartitionError):
                raise said[0].fresh_copy()
            names = ", ".join(repr(topic) for topic in missing)
            raise errors.UnknownTopicOrPartitionError(
                f"topic {names} does not exist (waited {limit_ms:.0f} ms). Create it, or check the spelling;"
                " the broker may not create topics by itself (auto.create.topics.enable)"
            )
        raise self._timeout(f"no metadata for {missing} within {limit_ms:.0f} ms")

    def _raise_if_final(self, topic: str, wait_for_creation: bool) -> None:
        error = self.metadata.error_for(topic)
        if error is None or topic in self.metadata.topics:
            return
        if not error.retriable:
            raise error.fresh_copy()
        if isinstance(error, errors.UnknownTopicOrPartitionError) and not wait_for_creation:
            self.metadata.forget_topic(topic)
            raise error.fresh_copy()

    def _timeout(self, what: str) -> errors.KafkaTimeoutError:
        error = self.metadata.last_error
        return errors.KafkaTimeoutError(
            f"{what}; last failure: {error}" if error is not None else f"{what}: {self._why_unreachable()}"
        )
