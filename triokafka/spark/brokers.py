"""What the driver asks the brokers: which partitions there are, where they begin and end, what a group has committed.

One client serves all calls of a process. Every call has a deadline, because Spark sets none.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar
from uuid import UUID

import trio

import triokafka
from triokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.loop_thread import loop_thread
from triokafka.spark.client_settings import in_option_names
from triokafka.spark.kept import kept
from triokafka.spark.offsets import Offsets
from triokafka.spark.options import ReadOptions
from triokafka.spark.topics import Assign
from triokafka.structs import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_log: Final = logging.getLogger("triokafka.spark")

_SILENCE: Final = 5.0  # seconds without an answer after which the log says what is waited for
_GRACE: Final = 5.0  # seconds that closing and pausing may take after a call's own deadline


class NoSuchTopicError(UnknownTopicOrPartitionError):
    """A topic or partition that the options name is not there."""


_FINAL: Final = (KafkaTimeoutError, KafkaConnectionError)


class Brokers:
    """The brokers of one query, asked through one client. Methods are to be awaited in the loop of the process."""

    def __init__(self, options: ReadOptions, admin: triokafka.AdminClient) -> None:
        self._options = options
        self._admin = admin
        self.topic_ids: dict[str, UUID] = {}
        """Of the topics that `partitions` has found; without those of brokers that give none (before Kafka 2.8)."""
        self._isolation = str(options.client.values.get("isolation_level", "read_uncommitted"))

    async def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        """The partitions that there are now, of those that the query is about, in order.

        Args:
            missing_ok: whether topics and partitions that are named may be absent; they are left out then.

        Raises:
            NoSuchTopicError: a topic or partition that is named is not there.
        """
        wanted = self._options.topics
        asked = wanted.topics
        if asked is None:
            # Only what matches: another topic without a leader would be asked about until the time is over.
            there = [topic.name for topic in await self._admin.list_topics()]
            asked = tuple(one.topic for one in wanted.choose(dict.fromkeys(there, (0,))))
        found = await self._admin.describe_topics(asked)
        known: dict[str, list[int]] = {}
        for topic in asked:
            error = found.errors.get(topic)
            if error is None:
                known[topic] = [part.partition for part in found[topic].partitions]
                if found[topic].topic_id.int:
                    self.topic_ids[topic] = found[topic].topic_id
            elif not isinstance(error, UnknownTopicOrPartitionError):
                raise error
            elif wanted.topics is not None and not missing_ok:
                # A topic that matched a pattern a moment ago was just deleted.
                raise NoSuchTopicError(
                    f"there is no topic {topic!r} at {self._options.client.bootstrap_servers}: create it, or check the"
                    f" name in option {type(wanted).__name__.lower()!r}{await self._meant(topic)}"
                )
        chosen = wanted.choose(known)
        if isinstance(wanted, Assign) and len(chosen) < len(wanted.partitions) and not missing_ok:
            missing = next(one for one in wanted.partitions if one not in set(chosen))
            raise NoSuchTopicError(
                f"option 'assign' names {missing}, and {missing.topic} has {len(known[missing.topic])} partitions"
            )
        return chosen

    async def _meant(self, topic: str) -> str:
        """A topic that is there and has nearly the same name, for a sentence."""
        try:
            there = [each.name for each in await self._admin.list_topics() if each.name != topic]
        except KafkaError:  # it was only a kindness
            return ""
        near = difflib.get_close_matches(topic, there, n=1, cutoff=0.75)
        return f"; did you mean {near[0]!r}?" if near else ""

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are still there."""
        return await self._look_up(dict.fromkeys(partitions, "earliest"))

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; under ``read_committed`` where open transactions begin."""
        return await self._look_up(dict.fromkeys(partitions, "latest"))

    async def at_timestamps(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        """The offsets of the first records at or after the times; None where there is none."""
        found = await self._look_up(timestamps_ms)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    async def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What a group has committed; partitions without a committed offset are left out."""
        found = await self._admin.list_group_offsets(group_id, list(partitions))
        return {partition: position.offset for partition, position in found.items()}

    async def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit offsets to a group without being a member of it; fails while it has members."""
        await self._admin.alter_group_offsets(
            group_id, {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        )

    async def _look_up(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        found = await self._admin.list_offsets(wanted, isolation_level=self._isolation)
        return {partition: found[partition].offset for partition in wanted}


def ask_brokers(options: ReadOptions, work: Callable[[Brokers], Awaitable[T]]) -> T:
    """Have ``work`` ask the brokers in the loop of the process, and wait for what it returns. Blocks.

    Tried ``fetchOffset.numRetries`` times when something changed in the middle, as when a topic is deleted, or when a
    topic is not there: not all brokers know yet of one that was just made. All tries together take at most
    ``default.api.timeout.ms`` for each.

    Raises:
        KafkaError: what the last try raised, without the frames of the loop: Spark shows its users the whole traceback.
    """
    try:
        return loop_thread().call(lambda: _ask(options, work))
    except KafkaError as error:
        raise without_frames(error) from error.__cause__


def without_frames(error: KafkaError) -> KafkaError:
    """The error without the frames of the loop: it has a sentence, and Spark shows its users the whole traceback.

    What to do about it follows as a note, which Spark shows too. Both name options as they are given to Spark.
    """
    if error.args and isinstance(error.args[0], str):
        error.args = (in_option_names(error.args[0]), *error.args[1:])
    advice = in_option_names(error.advice)
    if advice and advice not in (str(error), *getattr(error, "__notes__", ())):
        error.add_note(advice)
    return error.with_traceback(None)


async def _ask(options: ReadOptions, work: Callable[[Brokers], Awaitable[T]]) -> T:
    tries = options.fetch_offset_retries
    while True:
        try:
            return await _once(options, work)
        except KafkaError as error:
            tries -= 1
            # The client has retried for all its time already where time is over.
            if not tries or not error.retriable or isinstance(error, _FINAL):
                raise
            _log.warning("asking for offsets failed, and is tried again: %s", in_option_names(str(error)))
        await trio.sleep(options.fetch_offset_retry_interval_ms / 1000)


async def _once(options: ReadOptions, work: Callable[[Brokers], Awaitable[T]]) -> T:
    settings = options.client.connection()
    if "default_api_timeout_ms" in options.client.values:
        settings["default_api_timeout_ms"] = options.client.values["default_api_timeout_ms"]

    def make() -> AbstractAsyncContextManager[triokafka.AdminClient]:
        return triokafka.AdminClient(**settings)

    seconds = settings.get("default_api_timeout_ms", 60_000) / 1000
    # The calls have deadlines of their own, with better sentences. This one holds whatever else may hang.
    waiting = trio.CancelScope()
    loop_thread().nursery.start_soon(_tell_of_waiting, waiting, options, seconds)
    try:
        with trio.fail_after(seconds + _GRACE):
            async with kept().shared(("admin", options.client.key), make) as admin:
                return await work(Brokers(options, admin))
    except trio.TooSlowError:
        raise KafkaTimeoutError(
            f"the brokers at {options.client.bootstrap_servers} gave no offsets of {options.topics} within"
            f" {seconds:.0f} s"
        ) from None
    finally:
        waiting.cancel()


async def _tell_of_waiting(scope: trio.CancelScope, options: ReadOptions, seconds: float) -> None:
    """A minute is long for whoever looks at a screen: a wrong address is to be seen sooner."""
    with scope:
        await trio.sleep(_SILENCE)
        _log.warning(
            "no answer from the brokers at %s for %.0f s; they are asked for at most %.0f s (option"
            " kafka.default.api.timeout.ms)",
            options.client.bootstrap_servers,
            _SILENCE,
            seconds,
        )
