"""Commits in order, one at a time, and automatic commits.

Auto-commit sends only finished offsets: a record or batch is finished when the user asks for the next one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import GroupIdentity, GroupOffsets
from triokafka.client.consumer.interceptors import intercept_commit
from triokafka.client.consumer.membership.group_membership import GroupMembership
from triokafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError, StaleMemberEpochError
from triokafka.hooks import HookChain
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.structs import OffsetAndMetadata, TopicPartition, first_names
from triokafka.world import World

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, KafkaError | None], object]
_Later = dict[TopicPartition, tuple[OffsetAndMetadata, GroupIdentity | None]]
"""Offsets to commit, with the identity of the member at the time of the call."""

_CLOSED: Final = (
    "the consumer was closed, within close_timeout_ms, before the coordinator had confirmed the commit; whether it"
    " happened is unknown"
)


class Committer:
    """All commits of one consumer.

    ``finished`` returns the offsets that the user has finished, given those committed last; ``owns`` says whether a
    partition is assigned now; ``membership`` is None when partitions are assigned by hand.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        world: World,
        offsets: GroupOffsets,
        tasks: BackgroundTasks,
        failures: FailureTracker,
        hooks: HookChain,
        *,
        finished: Callable[[Mapping[TopicPartition, int]], Offsets],
        owns: Callable[[TopicPartition], bool],
        on_done: Callable[[], None],
    ) -> None:
        self.membership: GroupMembership | None = None
        self.automatic = options.enable_auto_commit and options.group_id is not None
        self._options = options
        self._world = world
        self._offsets = offsets
        self._tasks = tasks
        self._failures = failures
        self._hooks = hooks
        self._finished = finished
        self._owns = owns
        self._on_done = on_done
        # A late retry must not overwrite a newer commit with an older offset.
        self._one_at_a_time = trio.Lock()
        self._committed: dict[TopicPartition, int] = {}
        self._commits_before_rebalance = False
        self._later: _Later = {}
        self._report_later: dict[OnCommit, None] = {}
        self._all_sent: trio.Event | None = None
        self._restart = trio.Event()

    async def commit(self, offsets: Offsets, *, deadline: float) -> None:
        """Commit ``offsets`` after all earlier commits.

        Raises:
            CommitFailedError, KafkaTimeoutError, KafkaError: see `GroupOffsets.commit`.
        """
        if not offsets:
            return
        async with self._my_turn(deadline):
            await self._send(offsets, deadline)

    async def commit_existing(self, offsets: Offsets, *, limit: float) -> None:
        """As `commit`, within ``limit`` seconds, without partitions that do not exist.

        Partitions of deleted topics are left out, so that the commit does not wait for them.
        """
        deadline = self._world.now() + limit
        missing: set[TopicPartition] = set()
        async with self._my_turn(deadline):
            await self._send(offsets, deadline, missing)
        if missing:
            logger.info("Commit: left out the offsets of partitions that do not exist: %s", sorted(missing))

    @asynccontextmanager
    async def _my_turn(self, deadline: float) -> AsyncIterator[None]:
        """Wait until all earlier commits are done."""
        try:
            with trio.fail_after(max(0.0, deadline - self._world.now())):
                await self.all_sent()
                await self._one_at_a_time.acquire()
        except trio.TooSlowError:
            raise KafkaTimeoutError("the commit did not succeed in time; an earlier one is still under way") from None
        try:
            yield
        finally:
            self._one_at_a_time.release()

    def commit_later(self, offsets: Offsets, on_done: OnCommit | None) -> None:
        """Commit in the background, in order. Offsets given while a commit is under way are sent together with the
        next."""
        asked_as = None if self.membership is None else self.membership.identity
        self._later.update((partition, (offset, asked_as)) for partition, offset in offsets.items())
        if on_done is not None:
            self._report_later[on_done] = None
        if self._all_sent is None:
            self._all_sent = trio.Event()
            self._tasks.start(self._commit_later, self._all_sent, name="kafka commit_nowait")

    async def all_sent(self) -> None:
        """Wait until all commits of `commit_later` are done."""
        while self._all_sent is not None:
            await self._all_sent.wait()

    async def _commit_later(self, all_sent: trio.Event) -> None:
        try:
            while self._later or self._report_later:
                later, listeners = self._take_later()
                error: KafkaError | None = None
                try:
                    if later:
                        async with self._one_at_a_time:
                            await self._send_later(later)
                except KafkaError as failed:
                    error = failed
                    if not listeners:
                        logger.warning("commit_nowait of %d partitions failed: %s", len(later), error)
                except trio.Cancelled:
                    waiting, their_listeners = self._take_later()
                    _report({**later, **waiting}, {**listeners, **their_listeners}, KafkaTimeoutError(_CLOSED))
                    raise
                _report(later, listeners, error)
        finally:
            self._all_sent = None
            all_sent.set()

    def _take_later(self) -> tuple[_Later, dict[OnCommit, None]]:
        later, self._later = self._later, {}
        listeners, self._report_later = self._report_later, {}
        return later, listeners

    async def _send_later(self, later: _Later) -> None:
        """Send the offsets, without partitions that were revoked meanwhile: that would set their new owners back."""
        now = None if self.membership is None else self.membership.identity
        gone: set[TopicPartition] = set()
        if now is not None and now.generation >= 0:
            gone = {p for p, (_, asked_as) in later.items() if asked_as != now and not self._owns(p)}
        kept = {partition: offset for partition, (offset, _) in later.items() if partition not in gone}
        if kept:
            asked_as = later[next(reversed(kept))][1]
            deadline = self._world.now() + self._options.default_api_timeout_ms / 1000
            await self._send(kept, deadline, asked_as=asked_as)
        if gone:
            raise CommitFailedError(
                f"not committed: {first_names(sorted(gone))} went to another member before this commit was sent;"
                " their records since the last commit will be read again"
            )

    async def _send(
        self,
        offsets: Offsets,
        deadline: float,
        missing: set[TopicPartition] | None = None,
        asked_as: GroupIdentity | None = None,
    ) -> None:
        membership = self.membership
        since = self._world.now()
        try:
            if membership is None:
                await self._offsets.commit(offsets, GroupIdentity(), deadline=deadline, missing=missing)
            else:
                await self._send_as_member(offsets, membership, deadline, missing, asked_as)
        except KafkaError as error:
            self._note(offsets, since, error)
            raise
        self._note(offsets, since, None)
        if missing:
            offsets = {partition: offset for partition, offset in offsets.items() if partition not in missing}
        self._committed.update((partition, offset.offset) for partition, offset in offsets.items())
        intercept_commit(self._options.interceptors, offsets)

    def _note(self, offsets: Offsets, since: float, error: KafkaError | None) -> None:
        if self._hooks and self._options.group_id is not None:
            self._hooks.on_commit(self._options.group_id, offsets, self._world.now() - since, error)

    async def _send_as_member(
        self,
        offsets: Offsets,
        membership: GroupMembership,
        deadline: float,
        missing: set[TopicPartition] | None,
        asked_as: GroupIdentity | None,
    ) -> None:
        group_id = membership.group_id
        while True:
            identity = membership.identity
            if identity.generation < 0 and asked_as is not None:
                identity = asked_as  # it is about to leave, but the leave request follows this commit
            if identity.generation < 0:
                raise CommitFailedError(
                    f"the offsets were not committed: this consumer is not a member of group {group_id!r} now"
                    " (it has not joined yet, or was removed); records since the last commit will be read again"
                )
            try:
                await self._offsets.commit(offsets, identity, deadline=deadline, missing=missing)
                return
            except CommitFailedError as error:
                # The member may be in a later generation by now; the response does not tell.
                if membership.identity == identity:
                    membership.commit_failed(error)
                raise
            except StaleMemberEpochError as error:
                # The member has entered another epoch meanwhile; the response to the next heartbeat names it.
                renewed = False
                with trio.move_on_after(max(0.0, deadline - self._world.now())):
                    renewed = await membership.renew(identity, offsets)
                if self._world.now() >= deadline:
                    raise KafkaTimeoutError(f"the commit to group {group_id!r} did not succeed in time") from error
                if not renewed:
                    raise CommitFailedError(
                        f"the offsets were not committed: some of the partitions no longer belong to this member of"
                        f" group {group_id!r}; their records since the last commit will be read again"
                    ) from error
                await trio.sleep(self._options.retry_backoff_ms / 1000 if identity == membership.identity else 0)

    async def commit_as(self, offsets: Offsets, identity: GroupIdentity) -> None:
        """Commit once as a member that is about to leave, after all earlier commits; failures are logged."""
        deadline = self._world.now() + self._options.request_timeout_ms / 1000
        try:
            async with self._my_turn(deadline):
                await self._offsets.commit(offsets, identity, deadline=deadline)
        except KafkaError as error:
            logger.warning(
                "The last commit before leaving the group failed; the next owners read records again: %s", error
            )

    # ---------------------------------------------------------------- automatic commits

    def assignment_changed(self) -> None:
        """Forget the committed offsets, and start the auto-commit interval again."""
        self._committed.clear()
        self._restart.set()

    def start_commit_before_rebalance(self) -> None:
        """Start to commit the finished offsets in the background; see `commits_before_rebalance`."""
        if self.automatic and not self._commits_before_rebalance:
            self._commits_before_rebalance = True
            self._tasks.start(self._commit_before_rebalance, name="kafka commit before a rebalance")

    @property
    def commits_before_rebalance(self) -> bool:
        """Whether a commit of `start_commit_before_rebalance` is under way."""
        return self._commits_before_rebalance

    async def _commit_before_rebalance(self) -> None:
        try:
            await self.commit_finished(self._options.request_timeout_ms / 1000)
        finally:
            self._commits_before_rebalance = False
            self._on_done()

    async def run(self) -> None:
        """Commit the finished offsets every ``auto_commit_interval_ms``, until cancelled."""
        while True:
            self._restart = trio.Event()
            with trio.move_on_after(self._options.auto_commit_interval_ms / 1000):
                await self._restart.wait()
                continue
            membership = self.membership
            # A member that is about to rejoin commits as part of its preparation.
            if membership is None or membership.settled:
                await self.commit_finished(self._options.request_timeout_ms / 1000)
            await trio.lowlevel.checkpoint()

    async def commit_finished(self, limit: float) -> None:
        """Commit the finished offsets now. Failures are logged; the next commit covers the same offsets."""
        what = "auto-commit"
        await self.all_sent()
        async with self._one_at_a_time:
            offsets = self._finished(self._committed)
            if not offsets:
                self._failures.succeeded(what)
                return
            # A deleted topic needs no offsets, and the commit must not wait for it.
            missing: set[TopicPartition] = set()
            try:
                await self._send(offsets, self._world.now() + limit, missing)
                self._failures.succeeded(what)
                if missing:
                    logger.info(
                        "Auto-commit: left out the offsets of partitions that do not exist: %s", sorted(missing)
                    )
            except KafkaError as error:
                logger.warning(
                    "Auto-commit of %d partitions failed; the next one includes them: %s", len(offsets), error
                )
                self._failures.failed(what, error, self._world.now(), quietly=True)


def _report(later: _Later, listeners: Iterable[OnCommit], error: KafkaError | None) -> None:
    offsets = {partition: offset for partition, (offset, _) in later.items()}
    for on_done in listeners:
        try:
            on_done(offsets, error)
        except Exception:
            logger.exception("The callback on_done of commit_nowait raised an error")
