"""The subscription, the assigned partitions and their positions.

A plain object: no I/O, no clock, no `await`. Callers report subscriptions, assignments and returned records. The object
returns which partitions may be fetched, and which need a position first.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.client.consumer.partition_state import PartitionState
from triokafka.client.consumer.read_epochs import ReadEpochs
from triokafka.errors import IllegalStateError
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS

EARLIEST: Final = -2
LATEST: Final = -1
"""The two special timestamps of ListOffsets; a reset target is one of them or a timestamp in milliseconds."""


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression that the group's coordinator applies, in RE2 syntax, to whole names of topics (KIP-848).

    Only for ``group_protocol="consumer"``. The consumer does not need the list of all topics, and new topics are added
    without its work. The consumer applies a `str` or `re.Pattern` itself, under both protocols.
    """

    pattern: str


class Mode(enum.Enum):
    """How the assignment is made; the modes exclude each other until `SubscriptionState.unsubscribe`."""

    NONE = "nothing subscribed"
    TOPICS = "subscribed by name"
    PATTERN = "subscribed by pattern"
    REMOTE_PATTERN = "subscribed by a pattern that the coordinator applies"
    ASSIGNED = "assigned by hand"


_DECIDED_BY_GROUP: Final = (Mode.TOPICS, Mode.PATTERN, Mode.REMOTE_PATTERN)


class SubscriptionState:
    """Subscription, assignment and positions of one consumer.

    Args:
        default_reset: where to start without a usable position: `EARLIEST`, `LATEST`, or None to raise instead.
        exclude_internal_topics: whether patterns skip Kafka's own topics.
    """

    def __init__(self, default_reset: int | None = LATEST, *, exclude_internal_topics: bool = True) -> None:
        self.default_reset = default_reset
        self.mode = Mode.NONE
        self.generation = 0
        """Number of changes of the assignment."""
        self._exclude_internal = exclude_internal_topics
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._remote_pattern: SubscriptionPattern | None = None
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._assignment: tuple[TopicPartition, ...] = ()
        self._assigned_set: frozenset[TopicPartition] | None = frozenset()
        self._versions = 0

    # The subscription

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise IllegalStateError(
                f"the consumer is {self.mode.value} and cannot also be {mode.value}: call unsubscribe() first"
            )
        self.mode = mode

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe by name, replacing the earlier names; the assignment stays until the group changes it.

        Returns whether the set of topics changed.
        """
        wanted = tuple(sorted(set(topics)))
        if not wanted:
            raise ValueError("subscribe() needs at least one topic; unsubscribe() ends a subscription")
        self._enter(Mode.TOPICS)
        changed = wanted != self._topics
        self._topics = wanted
        return changed

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> bool:
        """Subscribe to every topic whose whole name matches; `match` fills in the names. Return whether it changed."""
        self._enter(Mode.PATTERN)
        compiled = re.compile(pattern)
        changed = compiled != self._pattern
        if changed:
            self._pattern, self._topics = compiled, ()
        return changed

    def subscribe_remote_pattern(self, pattern: SubscriptionPattern) -> None:
        """Subscribe to the topics that the coordinator finds to match; `matched` fills in their names."""
        self._enter(Mode.REMOTE_PATTERN)
        self._remote_pattern = pattern

    def matched(self, topics: Iterable[str]) -> None:
        """Add topics of assigned partitions: they match the coordinator's pattern."""
        self._topics = tuple(sorted(topics))

    def match(self, all_topics: Iterable[str]) -> bool:
        """Apply the pattern to the names of all topics; return whether the subscription changed."""
        pattern = self._pattern
        if pattern is None:
            return False
        hidden = INTERNAL_TOPICS if self._exclude_internal else frozenset()
        found = tuple(sorted(topic for topic in all_topics if topic not in hidden and pattern.fullmatch(topic)))
        changed = found != self._topics
        self._topics = found
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign by hand, in place of the former assignment; partitions in both keep their state."""
        self._enter(Mode.ASSIGNED)
        self._replace(partitions, keep=True)

    def unsubscribe(self) -> None:
        """Drop topics, pattern and partitions."""
        self.mode = Mode.NONE
        self._topics, self._pattern, self._remote_pattern = (), None, None
        self._replace((), keep=False)

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscribed topics, sorted; those that matched so far when subscribed by pattern."""
        return self._topics

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The pattern subscribed to, if any."""
        return self._pattern

    @property
    def remote_pattern(self) -> str | None:
        """The pattern that the coordinator applies, if any."""
        return None if self._remote_pattern is None else self._remote_pattern.pattern

    @property
    def uses_group(self) -> bool:
        """Whether the group decides the assignment."""
        return self.mode in _DECIDED_BY_GROUP

    # The assignment

    def assign_from_group(self, partitions: Collection[TopicPartition], *, keep: bool) -> None:
        """Take over the assignment of the group. Without ``keep`` (eager protocol) every partition starts blank.

        Raises:
            IllegalStateError: a partition belongs to a topic without subscription; nothing was changed.
        """
        if self.mode is Mode.TOPICS:
            foreign = sorted({partition.topic for partition in partitions}.difference(self._topics))
            if foreign:
                raise IllegalStateError(
                    f"the group assigned partitions of {foreign}, but this consumer subscribes to {self._topics}"
                )
        self._replace(partitions, keep=keep)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions and keep the others."""
        gone = set(partitions)
        self._replace([partition for partition in self._partitions if partition not in gone], keep=True)

    def mark_revoking(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching and returning exactly these partitions, which are about to be revoked."""
        revoking = frozenset(partitions)
        for partition, state in self._partitions.items():
            state.revoking = partition in revoking

    def _replace(self, partitions: Iterable[TopicPartition], *, keep: bool) -> None:
        old = self._partitions
        self._partitions = {}
        for partition in partitions:
            state = old.get(partition) if keep else None
            self._partitions[partition] = state or PartitionState(self._next_version())
        self._assignment, self._assigned_set = tuple(self._partitions), None
        self.generation += 1

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions, in the order of assignment."""
        return self._assignment

    @property
    def assigned_set(self) -> frozenset[TopicPartition]:
        """The assigned partitions as a set, which is made once for each assignment."""
        if self._assigned_set is None:
            self._assigned_set = frozenset(self._partitions)
        return self._assigned_set

    def __contains__(self, partition: object) -> bool:
        return partition in self._partitions

    def __iter__(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        return iter(self._partitions.items())

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, None if it is not assigned."""
        return self._partitions.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition; raise `IllegalStateError` for any other."""
        found = self._partitions.get(partition)
        if found is None:
            raise IllegalStateError(f"partition {partition} is not assigned to this consumer")
        return found

    # Positions

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Set the position to ``offset``; earlier data and requests are stale from now on."""
        if offset < 0:
            raise ValueError(f"offset {offset} of {partition} is negative; use seek_to_beginning() or seek_to_end()")
        self._jump(self.state(partition), offset, leader_epoch)

    def request_reset(self, partition: TopicPartition, to: int) -> None:
        """Drop the position, to be looked up by timestamp ``to`` (or `EARLIEST`, `LATEST`)."""
        state = self.state(partition)
        self._jump(state, None, -1)
        state.reset_to = to

    def start_over(self, topic: str) -> None:
        """Drop the positions in this topic, to be found as if it had just been assigned."""
        for partition, state in self._partitions.items():
            if partition.topic == topic and state.reset_to is None:
                self._jump(state, None, -1)

    def _jump(self, state: PartitionState, offset: int | None, leader_epoch: int) -> None:
        state.position = state.finished = offset
        state.position_epoch = leader_epoch
        state.epoch_from = None
        state.fetched_epoch = -1
        state.reset_to = None
        state.validating = False
        # An epoch that came with the offset has not been compared with the leader's log yet.
        state.validated_epoch = -1
        state.version = self._next_version()

    def resolve(self, partition: TopicPartition, version: int, offset: int, leader_epoch: int = -1) -> bool:
        """Set a position whose lookup began at ``version``. Return False if it is too late to be used."""
        state = self._partitions.get(partition)
        if state is None or state.version != version:
            return False
        self._jump(state, offset, leader_epoch)
        return True

    def hand_out(self, partition: TopicPartition, position: int, leader_epoch: int = -1) -> None:
        """Move the position: the user has the records below it now, and has finished the previous ones."""
        state = self._partitions[partition]
        if leader_epoch >= 0 and (leader_epoch != state.position_epoch or state.epoch_from is None):
            state.epoch_from, state.epoch_before = state.position, state.position_epoch
            state.position_epoch = leader_epoch
        state.position = position

    def take_back(self, partition: TopicPartition, position: int, leader_epoch: int = -1) -> None:
        """Move the position back: records from there on were not returned after all.

        ``leader_epoch`` is the epoch of the record before the position, -1 if it is unknown.
        """
        state = self._partitions[partition]
        state.position = position
        if state.epoch_from is not None and position <= state.epoch_from:
            state.position_epoch, state.epoch_from = state.epoch_before, None
        elif 0 <= leader_epoch < state.position_epoch:
            state.position_epoch, state.epoch_from = leader_epoch, None

    def finish(self, partition: TopicPartition, offset: int) -> None:
        """Note that the user has finished every record below ``offset``."""
        state = self._partitions.get(partition)
        if state is not None:
            state.finished = offset

    def finish_all(self) -> None:
        """Note that all returned records are finished, because the user asked for more."""
        for state in self._partitions.values():
            state.finished = state.position

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return none of these until `resume`. All must be assigned, or none is paused."""
        for state in [self.state(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        for state in [self.state(partition) for partition in partitions]:
            state.paused = False

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The paused partitions."""
        return tuple(partition for partition, state in self._partitions.items() if state.paused)

    def without_position(self) -> list[tuple[TopicPartition, int]]:
        """Return partitions (with version) without a position and without a pending reset: the committed offset
        decides."""
        return [
            (partition, state.version)
            for partition, state in self._partitions.items()
            if state.position is None and state.reset_to is None
        ]

    def awaiting_reset(self) -> list[tuple[TopicPartition, int, int]]:
        """Return partitions (with version and timestamp) whose position is to be looked up."""
        return [
            (partition, state.version, state.reset_to)
            for partition, state in self._partitions.items()
            if state.reset_to is not None
        ]

    def with_new_leader(self, leader_epoch: Callable[[TopicPartition], int]) -> list[TopicPartition]:
        """Return partitions that may have buffered data from before a leader with a newer epoch took over."""
        return [p for p, state in self._partitions.items() if 0 <= state.fetched_epoch < leader_epoch(p)]

    def fetch_again(self, partition: TopicPartition) -> None:
        """Keep the position; data fetched from there on is stale from now on."""
        state = self.state(partition)
        state.fetched_epoch = -1
        state.version = self._next_version()

    def check_epochs(self, leader_epoch: Callable[[TopicPartition], int]) -> None:
        """Request validation where a leader with a newer epoch took over since the position was last compared."""
        for partition, state in self._partitions.items():
            if state.position is None or state.position_epoch < 0 or state.validating:
                continue
            current = leader_epoch(partition)
            if current > max(state.validated_epoch, state.position_epoch):
                state.validating = True

    def awaiting_validation(self) -> list[tuple[TopicPartition, int, int]]:
        """Return partitions (with version and the epoch of the position) to compare with the leader's log (KIP-320)."""
        return [
            (partition, state.version, state.position_epoch)
            for partition, state in self._partitions.items()
            if state.validating
        ]

    def same_until(self, partition: TopicPartition, epoch: int, end_offset: int) -> OffsetAndMetadata | None:
        """See `ReadEpochs.same_until`, for a partition that awaits validation."""
        state = self.state(partition)
        read = ReadEpochs(state.position_epoch, state.epoch_from, state.epoch_before)
        return read.same_until(epoch, end_offset)

    def validated(self, partition: TopicPartition, version: int, current_epoch: int) -> None:
        """Note that the log of the leader of ``current_epoch`` contains everything below the position."""
        state = self._partitions.get(partition)
        if state is not None and state.version == version:
            state.validating = False
            state.validated_epoch = current_epoch

    @property
    def all_positions_known(self) -> bool:
        """Whether every assigned partition can be fetched from, pauses aside."""
        return all(state.position is not None and not state.validating for state in self._partitions.values())

    # Offsets to commit

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions that have one; `commit` without arguments sends them."""
        return {
            partition: OffsetAndMetadata(state.position, "", state.position_epoch)
            for partition, state in self._partitions.items()
            if state.position is not None
        }

    def finished(self, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that auto-commit may send, where they differ from ``committed``."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, state in self._partitions.items():
            if state.finished is not None and committed.get(partition) != state.finished:
                # The epoch belongs to the position; it is unknown for an offset before that.
                epoch = state.position_epoch if state.finished == state.position else -1
                found[partition] = OffsetAndMetadata(state.finished, "", epoch)
        return found
