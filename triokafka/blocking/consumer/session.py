"""The loop's side of a blocking consumer: the SDK's `Consumer` in a task of its own, and commits.

The SDK's auto-commit is off: only the thread's side knows which records were returned, because it takes records over in
large numbers and returns them in small ones.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

import triokafka
from triokafka.blocking.conversation import LATER, Conversation
from triokafka.blocking.future import Future
from triokafka.errors import IllegalStateError, KafkaError
from triokafka.record_buffer import RecordBuffer
from triokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from triokafka import Consumer
    from triokafka.loop_thread import LoopThread

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, Any], object]

_COMMIT_SECONDS: Final = 10.0
_LEAVE_SECONDS: Final = 5.0


class ConsumerSession:
    """The SDK's consumer from its construction to its end. Coroutines are for `Conversation.ask`.

    ``commit_seconds`` is the time between automatic commits, None without them. ``committed`` are callbacks of commits
    with their arguments; the thread calls them.
    """

    def __init__(
        self,
        loop: LoopThread,
        options: dict[str, Any],
        buffered: RecordBuffer,
        *,
        commit_seconds: float | None,
        on_commit: OnCommit | None,
    ) -> None:
        self.loop = loop
        self.conversation = Conversation(loop)
        self.committed: deque[tuple[OnCommit, Offsets, Any]] = deque()
        self.listener: Any = None
        self._options = options
        self._buffered = buffered
        self._commit_seconds = commit_seconds
        self._commit_at = 0.0
        self._on_commit = on_commit
        self._sent: dict[TopicPartition, int] = {}
        self._consumer: Consumer | None = None
        self._closing = False
        self._warned_of_no_subscription = False
        self._ended = trio.Event()
        self._answer: Callable[[BaseException | None], None] | None = None
        self._listener_error: BaseException | None = None

    @property
    def consumer(self) -> Consumer:
        """The SDK's consumer."""
        assert self._consumer is not None
        return self._consumer

    # ---------------------------------------------------------------- lifetime

    async def open(self) -> None:
        """Construct the SDK's consumer. Raises `ConfigurationError` for invalid options."""
        consumer = triokafka.Consumer(**self._options)
        opened = trio.Event()
        self.loop.start(self._run, consumer, opened, name=f"kafka {self._options['client_id']}")
        await opened.wait()

    async def _run(self, consumer: Consumer, opened: trio.Event) -> None:
        error: BaseException | None = None
        try:
            async with consumer:
                self._consumer = consumer
                self._commit_at = trio.current_time() + (self._commit_seconds or 0)
                opened.set()
                await self.conversation.serve(lambda: self._closing)
        except KafkaError as raised:
            error = raised
            logger.warning("the consumer ended with an error: %s", raised)
        finally:
            opened.set()
            self.conversation.end()
            if self._answer is not None:
                self._answer(error)
            self._ended.set()

    async def close(self, commit: bool, seconds: float) -> Any:
        """Commit if ``commit`` is set, leave the group, and end; the thread waits at most ``seconds`` in total.

        A commit without an answer leaves a quarter of the time, at most five seconds, for leaving the group.
        """
        ends_at = trio.current_time() + seconds
        if commit and self._commit_seconds is not None and self._options["group_id"] is not None:
            with trio.move_on_at(ends_at - min(_LEAVE_SECONDS, seconds / 4)) as scope:
                await self._commit_now(self.positions())
            if scope.cancelled_caught:
                logger.warning(
                    "KafkaConsumer %s: the commit before closing got no answer in time", self._options["client_id"]
                )
        self._commit_seconds = None
        self._answer = answer = self.conversation.answer_later()
        self._closing = True
        self.loop.start(self._answer_at, ends_at, answer, name="kafka consumer close timeout")
        return LATER

    async def _answer_at(self, ends_at: float, answer: Callable[[BaseException | None], None]) -> None:
        with trio.move_on_at(ends_at):
            await self._ended.wait()
            return
        answer(None)

    def abandon(self) -> None:
        """End, because the `KafkaConsumer` was garbage-collected. From any thread; does not wait."""
        self.loop.soon(self._abandon)

    def _abandon(self) -> None:
        async def end() -> None:
            self._commit_seconds = None
            self._closing = True

        self.conversation.post(end)

    # ---------------------------------------------------------------- records

    async def fetch(self, seconds: float, limit: int, subscribed: bool = True) -> None:
        """Take over at most ``limit`` records; wait at most ``seconds`` for them.

        If the consumer is not ``subscribed``, wait until the time limit and return none, as in kafka-python.
        """
        until = trio.current_time() + seconds
        while True:
            self._commit_if_due()
            wait = until - trio.current_time()
            if self._commit_seconds is not None:
                wait = min(wait, max(0.01, self._commit_at - trio.current_time()))
            try:
                records = await self.consumer.poll(timeout_ms=max(0.0, wait) * 1000, max_records=limit)
            except IllegalStateError:
                if subscribed:
                    raise
                await self._wait_without_subscription(until)
                return
            self._add(records)
            self._raise_listener_error()
            if records or trio.current_time() >= until:
                return

    def _add(self, records: dict[TopicPartition, list[triokafka.ConsumerRecord]]) -> None:
        for partition, some in records.items():
            self._buffered.add(partition, some)

    async def _wait_without_subscription(self, until: float) -> None:
        self._raise_listener_error()
        if until > trio.current_time() and not self._warned_of_no_subscription:
            self._warned_of_no_subscription = True
            logger.warning(
                "KafkaConsumer %s waits for records without a subscription, so that none will come: call subscribe()"
                " or assign() first",
                self._options["client_id"],
            )
        await trio.sleep_until(until)

    async def touch(self) -> None:
        """Do the rest of a poll, besides fetching: serve the group membership, and commit when the interval has
        passed."""
        consumer = self.consumer
        resting = consumer.assignment() - consumer.paused()
        consumer.pause(*resting)
        try:
            self._add(await consumer.poll())
        finally:
            consumer.resume(*(resting & consumer.assignment()))
        self._commit_if_due()
        self._raise_listener_error()

    def _raise_listener_error(self) -> None:
        error, self._listener_error = self._listener_error, None
        if error is not None:
            raise KafkaError("User rebalance callback throws an error") from error

    # ---------------------------------------------------------------- positions and commits

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record to return; None while unknown."""
        waiting = self._buffered.first_offset(partition)
        if waiting is not None:
            return waiting
        health = self.consumer.health().partitions.get(partition)
        return None if health is None else health.position

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of every assigned partition that has one."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, health in self.consumer.health().partitions.items():
            waiting = self._buffered.first_offset(partition)
            position = health.position if waiting is None else waiting
            if position is not None:
                found[partition] = OffsetAndMetadata(position)
        return found

    def _commit_if_due(self) -> None:
        if self._commit_seconds is None or trio.current_time() < self._commit_at:
            return
        self._commit_at = trio.current_time() + self._commit_seconds
        offsets = {
            partition: at for partition, at in self.positions().items() if self._sent.get(partition) != at.offset
        }
        if offsets:
            self._sent.update((partition, at.offset) for partition, at in offsets.items())
            self.consumer.commit_nowait(offsets, on_done=partial(self._note_commit, self._on_commit, None, offsets))

    async def _commit_now(self, offsets: Offsets) -> None:
        try:
            if offsets:
                await self.consumer.commit(offsets, timeout_ms=_COMMIT_SECONDS * 1000)
        except KafkaError as error:
            logger.warning("the automatic commit failed: %s", error)

    async def commit_async(self, offsets: Offsets | None, callback: OnCommit | None, future: Future) -> None:
        """Commit in the background; afterwards the callback is appended to ``committed``."""
        wanted = self.positions() if offsets is None else dict(offsets)
        if not wanted:
            future.success(None)
            return
        self.consumer.commit_nowait(
            wanted, on_done=partial(self._note_commit, callback or self._on_commit, future, wanted)
        )

    def _note_commit(
        self, callback: OnCommit | None, future: Future | None, offsets: Offsets, _: Offsets, error: KafkaError | None
    ) -> None:
        if error is not None:
            logger.warning("a commit failed: %s", error)
            for partition in offsets:
                self._sent.pop(partition, None)
        if callback is not None:
            self.committed.append((callback, offsets, error))
        if future is not None and error is None:
            future.success(None)
        elif future is not None and error is not None:
            future.failure(error)

    async def unsubscribe(self) -> None:
        """Commit if auto-commit is on, and leave the group."""
        if self._commit_seconds is not None:
            await self._commit_now(self.positions())
        self.consumer.unsubscribe()

    # ---------------------------------------------------------------- the group

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Called by the SDK."""
        if self._commit_seconds is not None:
            await self._commit_now({one: at for one, at in self.positions().items() if one in set(revoked)})
        await self._tell("on_partitions_revoked", revoked)
        self._forget(revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Called by the SDK."""
        self._forget(assigned)
        await self._tell("on_partitions_assigned", assigned)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Called by the SDK."""
        await self._tell("on_partitions_lost", lost)
        self._forget(lost)

    def _forget(self, partitions: Any) -> None:
        for partition in partitions:
            self._buffered.drop(partition)
            self._buffered.paused.discard(partition)
            self._sent.pop(partition, None)

    async def _tell(self, method: str, partitions: Any) -> None:
        if self.listener is None:
            return
        try:
            await self.conversation.ask_back(partial(_call, getattr(self.listener, method), set(partitions)))
        except Exception as error:
            logger.exception("%s of the rebalance listener failed", method)
            self._listener_error = error


def _call(function: Callable[[Any], Any], partitions: set[TopicPartition]) -> None:
    result = function(partitions)
    if isinstance(result, Coroutine):
        try:
            result.send(None)
        except StopIteration:
            return
        result.close()
        raise TypeError(f"{function!r} must not wait for other tasks: it runs inside a rebalance")
