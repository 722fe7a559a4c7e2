"""Committed offsets of a group: fetching and committing them at the group's present coordinator.

Each call retries retriable errors, and ends at its deadline (seconds on the world's clock) at the latest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from triokafka.structs import Node, OffsetAndMetadata, TopicPartition, by_topic

logger = logging.getLogger(__name__)

T = TypeVar("T")

COORDINATOR: Final = "coordinator"
"""The purpose of the connection for group requests, which must not wait behind a long fetch."""
_LAST_WITH_TOPIC_NAMES: Final = 9
_FIRST_OF_MANY_GROUPS: Final = 8
_FIRST_WITH_STABLE: Final = 7
_COORDINATOR_HAS_MOVED: Final = (
    errors.NotCoordinatorError,
    errors.CoordinatorNotAvailableError,
    errors.RequestTimedOutError,
)
_MEMBER_HAS_CHANGED: Final = (errors.StaleMemberEpochError, errors.UnknownMemberIdError)


class GroupIdentity(NamedTuple):
    """The member that commits offsets; the defaults are for assignment by hand.

    ``generation`` is the member epoch under the consumer protocol.
    """

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    membership: int = 0
    """Distinguishes memberships of one member id, under the consumer protocol."""


class GroupOffsets:
    """Committed offsets of one group.

    ``on_retry`` is called with each failure that is retried. ``member`` returns the member of the consumer protocol
    that offset fetches name, None for no member.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        member: Callable[[], GroupIdentity | None] = lambda: None,
        on_retry: Callable[[errors.KafkaError], None] = lambda error: None,
    ) -> None:
        self._member = member
        self._on_retry = on_retry
        self._options = options
        self._network = network
        self._world = network.world
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)

    def _group_id(self) -> str:
        if not self._options.group_id:
            raise errors.CommitFailedError("this consumer has no group_id, so there are no committed offsets")
        return self._options.group_id

    async def _at_coordinator(
        self,
        call: Callable[[int], Awaitable[T]],
        deadline: float,
        what: str,
        *,
        again: tuple[type[errors.KafkaError], ...] = (),
    ) -> T:
        """Run a call against the coordinator; retry after a back-off while its error is retriable, or in ``again``.

        Raises:
            KafkaTimeoutError: no coordinator was found, or the call did not succeed, before ``deadline``.
            GroupAuthorizationFailedError: finding the coordinator is not allowed.
        """
        group_id = self._group_id()
        failures = 0
        while True:
            node: Node | None = None
            try:
                with trio.fail_after(max(0.0, deadline - self._world.now())):
                    node = await self._network.find_coordinator(group_id)
                    return await call(node.node_id)
            except trio.TooSlowError:
                if node is None:
                    raise errors.KafkaTimeoutError(f"no coordinator of group {group_id!r} was found in time") from None
                raise errors.KafkaTimeoutError(
                    f"{what}: the coordinator {node.address} did not answer in time"
                ) from None
            except errors.KafkaError as error:
                if not (error.retriable or (node is not None and isinstance(error, again))):
                    raise
                if node is None:
                    self._network.request_metadata_update()
                elif error.invalid_metadata or isinstance(error, _COORDINATOR_HAS_MOVED):
                    self._network.forget_coordinator(group_id)
                self._on_retry(error)
                failures += 1
                delay = self._backoff.delay(failures, self._world.random.random())
                if self._world.now() + delay >= deadline:
                    failed = (
                        f"no coordinator of group {group_id!r} was found" if node is None else f"{what} did not succeed"
                    )
                    raise errors.KafkaTimeoutError(f"{failed} in time; last error: {error}") from error
                logger.debug("%s failed, trying again: %s", what, error)
                await trio.sleep(delay)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets; None for partitions without one.

        Raises:
            KafkaTimeoutError: no answer in time.
            GroupAuthorizationFailedError, TopicAuthorizationFailedError: access is not allowed.
        """
        wanted = list(partitions)
        group_id = self._group_id()
        topics = by_topic(wanted)

        def build(version: int) -> OffsetFetchRequest:
            stable = version >= _FIRST_WITH_STABLE  # open transactions delay the response (KIP-447)
            if version >= _FIRST_OF_MANY_GROUPS:
                asked = [OffsetFetchRequestTopics(name=t, partition_indexes=numbers) for t, numbers in topics.items()]
                group = OffsetFetchRequestGroup(group_id=group_id, topics=asked)
                member = self._member()
                if member is not None and member.generation >= 0:
                    group.member_id, group.member_epoch = member.member_id, member.generation
                return OffsetFetchRequest(groups=[group], require_stable=stable)
            named = [OffsetFetchRequestTopic(name=t, partition_indexes=numbers) for t, numbers in topics.items()]
            return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=stable)

        async def call(node_id: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self._network.send(
                node_id, build, api=OffsetFetchRequest, max_version=_LAST_WITH_TOPIC_NAMES, purpose=COORDINATOR
            )
            return _read_committed_offsets(response)

        if not wanted:
            return {}
        # The request may have carried the epoch before the present one, or the group may have removed the member.
        found = await self._at_coordinator(
            call, deadline, f"looking up committed offsets of group {group_id!r}", again=_MEMBER_HAS_CHANGED
        )
        return {partition: found.get(partition) for partition in wanted}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupIdentity,
        *,
        deadline: float,
        missing: set[TopicPartition] | None = None,
    ) -> None:
        """Commit, with retries. Partitions that do not exist are retried too, or put into ``missing`` if given.

        Raises:
            CommitFailedError: the group has removed this member; the cause is the coordinator's error.
            KafkaTimeoutError: not confirmed in time; whether it happened is unknown.
            KafkaError: refused; see the class.
        """
        if not offsets:
            return
        group_id = self._group_id()
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            topics=list(topics.values()),
        )

        async def call(node_id: int) -> None:
            response = await self._network.send(
                node_id, request, max_version=_LAST_WITH_TOPIC_NAMES, purpose=COORDINATOR
            )
            codes = {
                TopicPartition(topic.name, answer.partition_index): answer.error_code
                for topic in response.topics
                for answer in topic.partitions
            }
            if missing is not None:
                gone = errors.UnknownTopicOrPartitionError.code
                missing.update(partition for partition, code in codes.items() if code == gone)
                codes = {partition: code for partition, code in codes.items() if code != gone}
            check_commit(codes, group_id)

        await self._at_coordinator(call, deadline, f"the commit to group {group_id!r}")


def check_commit(codes: Mapping[TopicPartition, int], group_id: str) -> None:
    """Raise the error in the answer to a commit, if there is one."""
    forbidden: list[str] = []
    for partition, code in codes.items():
        if not code:
            continue
        error = errors.for_code(code)
        if error is errors.TopicAuthorizationFailedError:
            forbidden.append(partition.topic)
        elif error in (errors.UnknownMemberIdError, errors.IllegalGenerationError, errors.RebalanceInProgressError):
            raise errors.CommitFailedError(
                f"the offsets were not committed: group {group_id!r} has rebalanced and may have given the partitions"
                " to another member. Records since the last commit will be read again. If the handling of one"
                " batch takes long, raise max_poll_interval_ms or lower max_poll_records"
            ) from error(f"commit of {partition}")
        elif error is errors.FencedInstanceIdError:
            raise error(f"another member of group {group_id!r} has this group_instance_id. {error.advice}".rstrip())
        else:
            raise error(f"commit of {partition} to group {group_id!r}. {error.advice}".rstrip())
    if forbidden:
        raise errors.TopicAuthorizationFailedError(f"not allowed to commit offsets of {sorted(set(forbidden))}")


def _read_committed_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    group = response.groups[0] if response.groups else response
    if group.error_code:
        raise errors.for_code(group.error_code)("fetching the committed offsets of the group failed")
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                raise errors.for_code(answer.error_code)(f"fetching the committed offset of {partition} failed")
            found[partition] = (
                OffsetAndMetadata(answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch)
                if answer.committed_offset >= 0
                else None
            )
    return found
