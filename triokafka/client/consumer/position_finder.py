"""The task that finds the position of every assigned partition without one: committed or reset, then validated.

It runs in the background, so that a `poll` with a short timeout, or a cancelled one, does not start over each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import GroupIdentity, GroupOffsets
from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.offset_reset import OffsetReset
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.client.consumer.truncation_check import TruncationCheck
from triokafka.errors import (
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
)
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition, first_names

logger = logging.getLogger(__name__)

_WHAT: Final = "looking up the positions of the assigned partitions"


class PositionFinder:
    """Finds positions whenever a partition lacks one.

    ``on_progress`` is called after each round. ``error`` is an error for the user; the finder pauses until `take_error`
    has returned it.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        failures: FailureTracker,
        member: Callable[[], GroupIdentity | None],
        on_progress: Callable[[], None],
    ) -> None:
        self._options = options
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._log_offsets = LogOffsets(options, network, self._note)
        self._offset_reset = OffsetReset(network, subscription, self._log_offsets, on_progress)
        self._truncation = TruncationCheck(network, subscription, self._log_offsets, on_progress)
        self._group_offsets = GroupOffsets(options, network, member, self._note)
        self._failures = failures
        self._on_progress = on_progress
        self._error: KafkaError | None = None
        self._error_versions: dict[TopicPartition, int] = {}
        """The partitions, with version, to which the error belongs; empty if it does not belong to single
        partitions."""
        self._wake = trio.Event()

    def wake(self) -> None:
        """Wake the task: the assignment, a position or the metadata has changed."""
        self._wake.set()

    def take_error(self) -> KafkaError | None:
        """Return the error that keeps a partition from having a position, once; afterwards the lookup continues."""
        error, self._error = self._error, None
        if error is None:
            return None
        self._wake.set()
        versions, self._error_versions = self._error_versions, {}
        if versions and not any(self._is_current(partition, version) for partition, version in versions.items()):
            return None  # the user has moved their positions meanwhile, or they were revoked
        return error

    def _is_current(self, partition: TopicPartition, version: int) -> bool:
        state = self._subscription.get(partition)
        return state is not None and state.version == version

    async def run(self) -> None:
        """Work until cancelled."""
        backoff = Backoff(self._options.retry_backoff_ms / 1000, self._options.retry_backoff_max_ms / 1000)
        failures = 0
        while True:
            if self._error is not None or not self._has_work():
                self._failures.succeeded(_WHAT)
                await self._wake.wait()
                self._wake = trio.Event()
                continue
            try:
                await self._round()
                failures = 0
                self._failures.succeeded(_WHAT)
            except KafkaError as error:
                if error.retriable:
                    failures += 1
                    self._note(error)
                    logger.debug("%s failed, trying again: %s", _WHAT, error)
                else:
                    self._error = error
            self._on_progress()
            if failures:
                await self._pause(backoff.delay(failures, self._world.random.random()))

    async def _pause(self, seconds: float) -> None:
        """Wait before the next round, but no longer than until a partition without a known leader gets one."""
        unknown = [partition for partition, _ in self._subscription.without_position()]
        unknown += [partition for partition, _, _ in self._subscription.awaiting_reset()]
        without_leader = [partition for partition in unknown if self._network.cluster.leader_for(partition) < 0]
        with trio.move_on_after(seconds):
            while not any(self._network.cluster.leader_for(partition) >= 0 for partition in without_leader):
                await self._wake.wait()
                self._wake = trio.Event()

    def _note(self, error: KafkaError) -> None:
        self._failures.failed(_WHAT, error, self._world.now())
        self._on_progress()

    def _has_work(self) -> bool:
        self._subscription.check_epochs(self._network.cluster.leader_epoch_for)
        return not self._subscription.all_positions_known

    async def _round(self) -> None:
        """Look up committed offsets first, then resets, then validate; each in one request per broker.

        A position is used as soon as it is found: a partition without a leader, or a silent broker, delays no other
        one.
        """
        deadline = self._world.now() + self._options.request_timeout_ms / 1000
        errors: list[KafkaError] = []
        unknown = self._subscription.without_position()
        if unknown:
            try:
                await self._from_committed(dict(unknown), deadline)
            except KafkaError as error:
                if not error.retriable:
                    raise
                errors.append(error)
        resets = self._subscription.awaiting_reset()
        if resets:
            errors += await self._offset_reset.look_up(resets, deadline)
        suspects = self._subscription.awaiting_validation()
        if suspects and all(error.retriable for error in errors):
            failure = await self._truncation.validate(suspects, deadline)
            if isinstance(failure, LogTruncationError):
                self._error_versions = {p: version for p, version, _ in suspects if p in failure.divergent_offsets}
            errors += [failure] if failure is not None else []
        if errors:
            raise next((error for error in errors if not error.retriable), errors[0])

    async def _from_committed(self, versions: dict[TopicPartition, int], deadline: float) -> None:
        committed = await self._group_offsets.committed(versions, deadline=deadline) if self._options.group_id else {}
        lost: dict[TopicPartition, int] = {}
        for partition, version in versions.items():
            found = committed.get(partition)
            if found is not None:
                self._subscription.resolve(partition, version, found.offset, found.leader_epoch)
                continue
            if not self._is_current(partition, version):
                continue
            reset = self._subscription.default_reset
            if reset is None:
                lost[partition] = version
            else:
                self._subscription.request_reset(partition, reset)
        self._subscription.check_epochs(self._network.cluster.leader_epoch_for)
        if lost:
            self._error_versions = lost
            missing = NoOffsetForPartitionError(
                f"no committed offset for {first_names(lost)}, and auto_offset_reset is 'none': seek, or set it"
            )
            missing.partitions = frozenset(lost)
            raise missing
