"""Lookups in the logs of partition leaders: offsets by time, ends of leader epochs.

Each call queries all leaders in parallel, and ends at its deadline (seconds on the world's clock) at the latest. It
retries until everything is known, or reports each response on arrival and leaves retrying to the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import trio

from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnsupportedForMessageFormatError,
    for_code,
)
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from triokafka.protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from triokafka.structs import OffsetAndTimestamp, TopicPartition, by_topic

T = TypeVar("T")

_Question: TypeAlias = Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]]
"""Queries a leader, given by its node id, about partitions that it leads."""

ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
_CONSUMER: Final = -1


class LogEpochEnd(NamedTuple):
    """The end of a leader epoch in the leader's log; both fields are -1 if the leader does not know the epoch."""

    epoch: int
    end_offset: int


class LogOffsets:
    """Log offset lookups of one client. ``on_retry`` is called with each failure that is retried."""

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

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each timestamp; -2 stands for the beginning of the log, -1 for its end.

        None for partitions that have no such record. Under ``read_committed`` the end is the last stable offset.

        Raises:
            KafkaTimeoutError: some leader did not answer in time; names the partitions and the last error.
            TopicAuthorizationFailedError, UnknownTopicOrPartitionError: the leader refused.
        """
        return await self._ask_leaders(list(timestamps), self._question_of_offsets(timestamps), deadline)

    async def offsets_as_they_come(
        self,
        timestamps: Mapping[TopicPartition, int],
        take: Callable[[Mapping[TopicPartition, OffsetAndTimestamp | None]], None],
        *,
        deadline: float,
    ) -> KafkaError | None:
        """As `list_offsets`, but query each leader once, and pass each response to ``take`` on arrival.

        Returns why some partition has no answer, None if all have one. The others need not wait for it.
        """
        return await self._ask_once(list(timestamps), self._question_of_offsets(timestamps), take, deadline)

    def _question_of_offsets(self, timestamps: Mapping[TopicPartition, int]) -> _Question[OffsetAndTimestamp | None]:
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
                # Version 1 knows no transactions and has no isolation level.
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

        return ask

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, deadline: float
    ) -> dict[TopicPartition, LogEpochEnd]:
        """Return where each leader epoch ends in the log of the present leader (KIP-320)."""
        return await self._ask_leaders(list(epochs), self._question_of_epochs(epochs), deadline)

    async def epoch_ends_as_they_come(
        self,
        epochs: Mapping[TopicPartition, int],
        take: Callable[[Mapping[TopicPartition, LogEpochEnd]], None],
        *,
        deadline: float,
    ) -> KafkaError | None:
        """As `epoch_ends`, in the way of `offsets_as_they_come`."""
        return await self._ask_once(list(epochs), self._question_of_epochs(epochs), take, deadline)

    def _question_of_epochs(self, epochs: Mapping[TopicPartition, int]) -> _Question[LogEpochEnd]:
        async def ask(node_id: int, asked: Sequence[TopicPartition]) -> dict[TopicPartition, LogEpochEnd | KafkaError]:
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
            found: dict[TopicPartition, LogEpochEnd | KafkaError] = {}
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.topic, answer.partition)
                    if answer.error_code:
                        found[partition] = for_code(answer.error_code)(f"leader epoch of {partition}")
                    else:
                        found[partition] = LogEpochEnd(answer.leader_epoch, answer.end_offset)
            return found

        return ask

    async def _ask_leaders(
        self, partitions: Sequence[TopicPartition], ask: _Question[T], deadline: float
    ) -> dict[TopicPartition, T]:
        """Query the leaders of all partitions in parallel, until all have answered."""
        found: dict[TopicPartition, T] = {}
        failures = 0
        while True:
            missing = [partition for partition in partitions if partition not in found]
            if not missing:
                return found
            await self._network.metadata_for(
                dict.fromkeys(partition.topic for partition in missing), timeout_ms=self._left_ms(deadline)
            )
            errors = await self._attempt(missing, ask, found.update, deadline)
            for error in errors.values():
                if not error.retriable:
                    raise error
            if errors:
                failures += 1
                self._network.request_metadata_update()
                await self._pause(failures, deadline, errors)

    async def _ask_once(
        self,
        partitions: Sequence[TopicPartition],
        ask: _Question[T],
        take: Callable[[Mapping[TopicPartition, T]], None],
        deadline: float,
    ) -> KafkaError | None:
        """Make one attempt; partitions of unknown topics do not delay the others."""
        cluster = self._network.cluster
        known = [partition for partition in partitions if cluster.partition(partition) is not None]
        others = [partition for partition in partitions if cluster.partition(partition) is None]
        errors = list((await self._attempt(known, ask, take, deadline)).values())
        if others:
            topics = dict.fromkeys(partition.topic for partition in others)
            try:
                await self._network.metadata_for(topics, timeout_ms=self._left_ms(deadline), wait_for_creation=False)
            except KafkaError as error:
                errors.append(error)
            errors.extend((await self._attempt(others, ask, take, deadline)).values())
        if not errors:
            return None
        self._network.request_metadata_update()
        return next((error for error in errors if not error.retriable), errors[0])

    async def _attempt(
        self,
        partitions: Sequence[TopicPartition],
        ask: _Question[T],
        take: Callable[[Mapping[TopicPartition, T]], None],
        deadline: float,
    ) -> dict[TopicPartition, KafkaError]:
        """Query the known leaders in parallel. Return the errors of the other partitions."""
        cluster = self._network.cluster
        by_leader: dict[int, list[TopicPartition]] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in partitions:
            leader = cluster.leader_for(partition)
            if leader >= 0:
                by_leader.setdefault(leader, []).append(partition)
            elif cluster.partition(partition) is None:
                errors[partition] = LeaderNotAvailableError(f"{partition} is not known to the cluster")
            else:
                errors[partition] = LeaderNotAvailableError(f"{partition} has no leader now")

        async def ask_and_take(leader: int, asked: Sequence[TopicPartition]) -> Mapping[TopicPartition, T | KafkaError]:
            answer = await ask(leader, asked)
            good = {p: got for p in asked if p in answer and not isinstance(got := answer[p], KafkaError)}
            take(good)
            return answer

        calls = [(asked, lambda n=leader, a=asked: ask_and_take(n, a)) for leader, asked in by_leader.items()]
        for (asked, _), answer in zip(calls, await self._together([call for _, call in calls], deadline), strict=True):
            for partition in asked:
                got = answer if isinstance(answer, KafkaError) else answer.get(partition)
                if isinstance(got, KafkaError):
                    errors[partition] = got
                elif isinstance(answer, KafkaError) or partition not in answer:
                    errors[partition] = LeaderNotAvailableError(f"the leader did not answer for {partition}")
        return errors

    def _left_ms(self, deadline: float) -> float:
        return max(0.0, deadline - self._world.now()) * 1000

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
