"""Questions about offsets, and commits: each call asks the right brokers, in parallel, and retries what may succeed.

Log offsets and epochs come from the leaders, committed offsets from the group's coordinator. Every call ends at its
deadline (seconds on the world's clock) at the latest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.fetcher import ISOLATION_LEVELS
from triokafka.client.consumer.membership.payloads import by_topic
from triokafka.errors import (
    CommitFailedError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnsupportedForMessageFormatError,
    for_code,
)
from triokafka.network.backoff import Backoff
from triokafka.network.cluster import NetworkClient
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from triokafka.protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from triokafka.structs import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

COORDINATOR: Final = "coordinator"
"""The purpose of the connection that group requests use: never behind a long fetch (`client/GRP-8`)."""
_LAST_WITH_TOPIC_NAMES: Final = 9
_FIRST_OF_MANY_GROUPS: Final = 8
_FIRST_WITH_STABLE: Final = 7
_CONSUMER: Final = -1


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in the leader's log; both -1 when the leader knows nothing of it."""

    epoch: int
    end_offset: int


class GroupIdentity(NamedTuple):
    """As whom offsets are committed; the defaults are for assignment by hand (`client/OFF-14`)."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetClient:
    """Offset questions of one consumer. ``on_retry`` is told of every failure after which a call tries again."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        on_retry: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._on_retry = on_retry
        self._options = options
        self._network = network
        self._world = network.world
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)

    # ---------------------------------------------------------------- logs

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after each timestamp; -2 asks for the beginning of the log, -1 for its end.

        None for partitions that have no such record. Under ``read_committed`` the end is the last stable offset.

        Raises:
            KafkaTimeoutError: some leader did not answer in time; says which partitions and the last error.
            TopicAuthorizationFailedError, UnknownTopicOrPartitionError: as it says.
        """

        async def ask(
            node_id: int, asked: Sequence[TopicPartition]
        ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
            cluster = self._network.cluster
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=number,
                                current_leader_epoch=cluster.leader_epoch_for(TopicPartition(topic, number)),
                                timestamp=timestamps[TopicPartition(topic, number)],
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(asked).items()
                ],
                timeout_ms=int(self._options.request_timeout_ms),
            )

            def build(version: int) -> ListOffsetsRequest:
                # Not in version 1, which knows no transactions and cannot carry the level.
                request.isolation_level = ISOLATION_LEVELS[self._options.isolation_level] if version >= 2 else 0
                return request

            response = await self._network.send(node_id, build, api=ListOffsetsRequest)
            found: dict[TopicPartition, OffsetAndTimestamp | KafkaError | None] = {}
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    error = for_code(answer.error_code) if answer.error_code else None
                    if error is None and answer.offset >= 0:
                        found[partition] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
                    elif error is None or error is UnsupportedForMessageFormatError:
                        found[partition] = None
                    else:
                        found[partition] = error(f"offsets of {partition}. {error.advice}".rstrip())
            return found

        return await self._ask_leaders(list(timestamps), ask, deadline)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Where each leader epoch ends in the log of the present leader (KIP-320)."""

        async def ask(node_id: int, asked: Sequence[TopicPartition]) -> dict[TopicPartition, EpochEnd | KafkaError]:
            cluster = self._network.cluster
            request = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=number,
                                current_leader_epoch=cluster.leader_epoch_for(TopicPartition(topic, number)),
                                leader_epoch=epochs[TopicPartition(topic, number)],
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(asked).items()
                ],
            )
            response = await self._network.send(node_id, request, min_version=3)
            found: dict[TopicPartition, EpochEnd | KafkaError] = {}
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.topic, answer.partition)
                    if answer.error_code:
                        found[partition] = for_code(answer.error_code)(f"leader epoch of {partition}")
                    else:
                        found[partition] = EpochEnd(answer.leader_epoch, answer.end_offset)
            return found

        return await self._ask_leaders(list(epochs), ask, deadline)

    async def _ask_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]],
        deadline: float,
    ) -> dict[TopicPartition, T]:
        """Ask the leader of every partition, all at once, until all have answered."""
        found: dict[TopicPartition, T] = {}
        failures = 0
        while True:
            missing = [partition for partition in partitions if partition not in found]
            if not missing:
                return found
            left_ms = max(0.0, deadline - self._world.now()) * 1000
            cluster = await self._network.metadata_for(
                dict.fromkeys(partition.topic for partition in missing), timeout_ms=left_ms
            )
            by_leader: dict[int, list[TopicPartition]] = {}
            errors: dict[TopicPartition, KafkaError] = {}
            for partition in missing:
                leader = cluster.leader_for(partition)
                if leader >= 0:
                    by_leader.setdefault(leader, []).append(partition)
                elif cluster.partition(partition) is None:
                    errors[partition] = LeaderNotAvailableError(f"{partition} is not known to the cluster")
                else:
                    errors[partition] = LeaderNotAvailableError(f"{partition} has no leader now")
            calls = [(asked, lambda n=leader, a=asked: ask(n, a)) for leader, asked in by_leader.items()]
            for (asked, _), answer in zip(
                calls, await self._together([call for _, call in calls], deadline), strict=True
            ):
                for partition in asked:
                    got = answer if isinstance(answer, KafkaError) else answer.get(partition)
                    if isinstance(got, KafkaError):
                        errors[partition] = got
                    elif isinstance(answer, KafkaError) or partition not in answer:
                        errors[partition] = LeaderNotAvailableError(f"the leader did not answer for {partition}")
                    else:
                        found[partition] = answer[partition]  # type: ignore[assignment]
            for error in errors.values():
                if not error.retriable:
                    raise error
            if errors:
                failures += 1
                self._network.request_metadata_update()
                await self._pause(failures, deadline, errors)

    async def _together(
        self, calls: Sequence[Callable[[], Awaitable[Mapping[TopicPartition, T | KafkaError]]]], deadline: float
    ) -> list[Mapping[TopicPartition, T | KafkaError] | KafkaError]:
        answers: list[Mapping[TopicPartition, T | KafkaError] | KafkaError] = [
            KafkaTimeoutError("no answer in time") for _ in calls
        ]

        async def run(position: int) -> None:
            try:
                answers[position] = await calls[position]()
            except KafkaError as error:
                answers[position] = error

        with trio.move_on_after(max(0.0, deadline - self._world.now())):
            if len(calls) == 1:
                await run(0)
            else:
                async with trio.open_nursery() as nursery:
                    for position in range(len(calls)):
                        nursery.start_soon(run, position)
        return answers

    async def _pause(self, failures: int, deadline: float, errors: Mapping[TopicPartition, KafkaError]) -> None:
        partition, error = next(iter(errors.items()))
        self._on_retry(error)
        delay = self._backoff.delay(failures, self._world.random.random())
        if self._world.now() + delay >= deadline:
            more = f" and {len(errors) - 1} more partitions" if len(errors) > 1 else ""
            raise KafkaTimeoutError(f"no answer in time about {partition}{more}; last error: {error}") from error
        await trio.sleep(delay)

    # ---------------------------------------------------------------- committed offsets

    async def coordinator(self, *, deadline: float) -> Node:
        """The group's coordinator, found within the time.

        Raises:
            KafkaTimeoutError: none was found.
            GroupAuthorizationFailedError: not allowed to know.
        """
        group_id = self._group_id()
        failures = 0
        while True:
            try:
                with trio.fail_after(max(0.0, deadline - self._world.now())):
                    return await self._network.find_coordinator(group_id)
            except trio.TooSlowError:
                raise KafkaTimeoutError(f"no coordinator of group {group_id!r} was found in time") from None
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._on_retry(error)
                failures += 1
                delay = self._backoff.delay(failures, self._world.random.random())
                if self._world.now() + delay >= deadline:
                    raise KafkaTimeoutError(
                        f"no coordinator of group {group_id!r} was found in time; last error: {error}"
                    ) from error
                self._network.request_metadata_update()
                await trio.sleep(delay)

    def _group_id(self) -> str:
        if not self._options.group_id:
            raise CommitFailedError("this consumer has no group_id, so there are no committed offsets")
        return self._options.group_id

    async def _at_coordinator(self, call: Callable[[int], Awaitable[T]], deadline: float, what: str) -> T:
        """Run a call against the coordinator, again after a back-off while its error is retriable."""
        failures = 0
        while True:
            node = await self.coordinator(deadline=deadline)
            try:
                with trio.fail_after(max(0.0, deadline - self._world.now())):
                    return await call(node.node_id)
            except trio.TooSlowError:
                raise KafkaTimeoutError(
                    f"{what}: the coordinator {node.host}:{node.port} did not answer in time"
                ) from None
            except KafkaError as error:
                if not error.retriable:
                    raise
                if error.invalid_metadata or isinstance(
                    error, (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)
                ):
                    self._network.forget_coordinator(self._group_id())
                self._on_retry(error)
                failures += 1
                delay = self._backoff.delay(failures, self._world.random.random())
                if self._world.now() + delay >= deadline:
                    raise KafkaTimeoutError(f"{what} did not succeed in time; last error: {error}") from error
                logger.debug("%s failed, trying again: %s", what, error)
                await trio.sleep(delay)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where there is none.

        Raises:
            KafkaTimeoutError: no answer in time.
            GroupAuthorizationFailedError, TopicAuthorizationFailedError: as it says.
        """
        wanted = list(partitions)
        group_id = self._group_id()
        topics = by_topic(wanted)

        def build(version: int) -> OffsetFetchRequest:
            stable = version >= _FIRST_WITH_STABLE  # open transactions hold the answer back (KIP-447)
            if version >= _FIRST_OF_MANY_GROUPS:
                asked = [OffsetFetchRequestTopics(name=t, partition_indexes=numbers) for t, numbers in topics.items()]
                return OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id=group_id, topics=asked)], require_stable=stable
                )
            named = [OffsetFetchRequestTopic(name=t, partition_indexes=numbers) for t, numbers in topics.items()]
            return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=stable)

        async def call(node_id: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
            response = await self._network.send(
                node_id, build, api=OffsetFetchRequest, max_version=_LAST_WITH_TOPIC_NAMES, purpose=COORDINATOR
            )
            return _read_committed_offsets(response)

        if not wanted:
            return {}
        found = await self._at_coordinator(call, deadline, f"looking up committed offsets of group {group_id!r}")
        return {partition: found.get(partition) for partition in wanted}

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], identity: GroupIdentity, *, deadline: float
    ) -> None:
        """Commit, with retries.

        Raises:
            CommitFailedError: the group has gone on without this member; its cause says how it found out.
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
            check_commit(
                {
                    TopicPartition(topic.name, answer.partition_index): answer.error_code
                    for topic in response.topics
                    for answer in topic.partitions
                },
                group_id,
            )

        await self._at_coordinator(call, deadline, f"the commit to group {group_id!r}")


def check_commit(codes: Mapping[TopicPartition, int], group_id: str) -> None:
    """Raise what the answer to a commit says, if anything (`client/OFF-12`, `client/OFF-13`)."""
    forbidden: list[str] = []
    for partition, code in codes.items():
        if not code:
            continue
        error = for_code(code)
        if error is TopicAuthorizationFailedError:
            forbidden.append(partition.topic)
        elif error in (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError):
            raise CommitFailedError(
                f"the offsets were not committed: group {group_id!r} has rebalanced and may have given the partitions"
                " to another member. What was read since the last commit will be read again. If the handling of one"
                " batch takes long, raise max_poll_interval_ms or lower max_poll_records"
            ) from error(f"commit of {partition}")
        elif error is FencedInstanceIdError:
            raise error(f"another member of group {group_id!r} has this group_instance_id. {error.advice}".rstrip())
        else:
            raise error(f"commit of {partition} to group {group_id!r}. {error.advice}".rstrip())
    if forbidden:
        raise TopicAuthorizationFailedError(f"not allowed to commit offsets of {sorted(set(forbidden))}")


def _read_committed_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
    group = response.groups[0] if response.groups else response
    if group.error_code:
        raise for_code(group.error_code)("committed offsets")
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                raise for_code(answer.error_code)(f"committed offset of {partition}")
            found[partition] = (
                OffsetAndMetadata(answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch)
                if answer.committed_offset >= 0
                else None
            )
    return found
