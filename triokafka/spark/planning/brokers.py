"""The driver's requests to brokers: existing partitions, their first and last offsets, and a group's offsets.

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
from triokafka.spark.client_cache import client_cache
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.client_settings import in_option_names
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.topics import Assign
from triokafka.structs import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_log: Final = logging.getLogger("triokafka.spark")

_SILENCE: Final = 5.0  # seconds without an answer before a warning
_GRACE: Final = 5.0  # seconds for closing and retry delays after a call's own deadline


class NoSuchTopicError(UnknownTopicOrPartitionError):
    """A topic or partition that the options name does not exist."""


_FINAL: Final = (KafkaTimeoutError, KafkaConnectionError)


class Brokers:
    """The brokers of one query, through one client. The methods run in the process's Trio loop."""

    def __init__(self, options: ReadOptions, admin: triokafka.AdminClient) -> None:
        self._options = options
        self._admin = admin
        self.topic_ids: dict[str, UUID] = {}
        """Ids of the topics that `partitions` has found; brokers before Kafka 2.8 have none."""
        self._isolation = str(options.client.values.get("isolation_level", "read_uncommitted"))

    async def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        """Return the query's partitions that exist now, in order.

        Args:
            missing_ok: whether named topics and partitions may be absent; they are omitted then.

        Raises:
            NoSuchTopicError: a named topic or partition does not exist.
        """
        wanted = self._options.topics
        asked = wanted.topics
        if asked is None:
            # Only matching topics: waiting for the leader of another topic could use up the deadline.
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
                # A topic that matched the pattern was deleted meanwhile; that is not an error.
                raise NoSuchTopicError(
                    f"topic {topic!r} does not exist at {self._options.client.bootstrap_servers}: create it, or check"
                    f" the name in option {type(wanted).__name__.lower()!r}{await self._meant(topic)}"
                )
        chosen = wanted.choose(known)
        if isinstance(wanted, Assign) and len(chosen) < len(wanted.partitions) and not missing_ok:
            missing = next(one for one in wanted.partitions if one not in set(chosen))
            raise NoSuchTopicError(
                f"option 'assign' names {missing}, but {missing.topic} has {len(known[missing.topic])} partitions"
            )
        return chosen

    async def _meant(self, topic: str) -> str:
        """Return a hint that names an existing topic with a similar name; empty if there is none."""
        try:
            there = [each.name for each in await self._admin.list_topics() if each.name != topic]
        except KafkaError:  # the hint is optional
            return ""
        near = difflib.get_close_matches(topic, there, n=1, cutoff=0.75)
        return f"; did you mean {near[0]!r}?" if near else ""

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first available offsets."""
        return await self._look_up(dict.fromkeys(partitions, "earliest"))

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offsets; under ``read_committed`` the last stable offsets."""
        return await self._look_up(dict.fromkeys(partitions, "latest"))

    async def at_timestamps(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        """Return the offsets of the first records at or after the timestamps; None without such a record."""
        found = await self._look_up(timestamps_ms)
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    async def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets; partitions without one are omitted."""
        found = await self._admin.list_group_offsets(group_id, list(partitions))
        return {partition: position.offset for partition, position in found.items()}

    async def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit offsets to a group without joining it; fails while the group has members."""
        await self._admin.alter_group_offsets(
            group_id, {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        )

    async def _look_up(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        found = await self._admin.list_offsets(wanted, isolation_level=self._isolation)
        return {partition: found[partition].offset for partition in wanted}


def ask_brokers(options: ReadOptions, work: Callable[[Brokers], Awaitable[T]]) -> T:
    """Run ``work`` in the process's Trio loop and return its result. Blocks.

    Retries up to ``fetchOffset.numRetries`` times when metadata changed meanwhile, or when a topic does not exist: some
    brokers may not know a new topic yet. Each try takes at most ``default.api.timeout.ms``.

    Raises:
        KafkaError: the error of the last try, without the frames of the loop: Spark prints the whole traceback.
    """
    try:
        return loop_thread().call(lambda: _ask(options, work))
    except KafkaError as error:
        raise without_frames(error) from error.__cause__


def without_frames(error: KafkaError) -> KafkaError:
    """Return the error without the frames of the loop: its message suffices, and Spark prints the whole traceback.

    The advice is added as a note, which Spark prints too. Both use the names of Spark's options.
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
            # After a timeout the client has already retried for the whole time.
            if not tries or not error.retriable or isinstance(error, _FINAL):
                raise
            _log.warning("request for offsets failed and is retried: %s", in_option_names(str(error)))
        await trio.sleep(options.fetch_offset_retry_interval_ms / 1000)


async def _once(options: ReadOptions, work: Callable[[Brokers], Awaitable[T]]) -> T:
    settings = options.client.connection()
    if "default_api_timeout_ms" in options.client.values:
        settings["default_api_timeout_ms"] = options.client.values["default_api_timeout_ms"]

    def make() -> AbstractAsyncContextManager[triokafka.AdminClient]:
        return triokafka.AdminClient(**settings)

    seconds = settings.get("default_api_timeout_ms", 60_000) / 1000
    # The calls have deadlines of their own, with better messages. This deadline covers everything else.
    waiting = trio.CancelScope()
    loop_thread().nursery.start_soon(_report_waiting, waiting, options, seconds)
    try:
        with trio.fail_after(seconds + _GRACE):
            async with client_cache().shared(("admin", options.client.key), make) as admin:
                return await work(Brokers(options, admin))
    except trio.TooSlowError:
        raise KafkaTimeoutError(
            f"the brokers at {options.client.bootstrap_servers} returned no offsets of {options.topics} within"
            f" {seconds:.0f} s"
        ) from None
    finally:
        waiting.cancel()


async def _report_waiting(scope: trio.CancelScope, options: ReadOptions, seconds: float) -> None:
    """Log a warning after `_SILENCE` seconds, so that a user sees a wrong address before the deadline."""
    with scope:
        await trio.sleep(_SILENCE)
        _log.warning(
            "brokers at %s: no answer for %.0f s; the request ends after %.0f s at the latest (option"
            " kafka.default.api.timeout.ms)",
            options.client.bootstrap_servers,
            _SILENCE,
            seconds,
        )
