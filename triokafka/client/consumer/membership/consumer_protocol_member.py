"""One member of a group under the consumer protocol (KIP-848), which consists of heartbeats. A plain object, no I/O.

The coordinator sends a target: the partitions that the member is to own. The member revokes partitions outside the
target, takes over the others, and reports the owned partitions in the next heartbeat. Its methods take events and the
time, write the heartbeats, and return when the next one is due.

    OUTSIDE ──join──▶ JOINING ──answered──▶ RECONCILING ⇄ STABLE
       ▲                 │ refused               │ fenced, or gone for too long
       ├─────────────────┘                       ▼
       └──────────────released────────────────  LOST
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

NO_EPOCH: Final = -1
_JOINING_EPOCH: Final = 0
_LEAVING_EPOCH: Final = -1
_LEAVING_FOR_NOW_EPOCH: Final = -2
_FIRST_WITH_PATTERN: Final = 1
_AT_ONCE: Final = -float("inf")
_LEAST_INTERVAL: Final = 0.05
"""The shortest time between two heartbeats without news, in seconds, whatever the coordinator says."""

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""


class MemberState(enum.Enum):
    """A member's state in the protocol."""

    OUTSIDE = "not in the group"
    JOINING = "joining"
    RECONCILING = "taking over a new assignment"
    STABLE = "in the group"
    LOST = "out of the group, giving up its partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """A member's settings. ``rebalance_timeout_ms`` is ``max_poll_interval_ms``: the time limit of a revocation."""

    group_id: str
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    server_assignor: str | None = None


class SubscribedTo(NamedTuple):
    """The subscription of a member: topics by name, and a pattern that the coordinator applies."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Heartbeat(NamedTuple):
    """A heartbeat to send, in ``min_version`` or later; pass ``sent_as`` back with the response."""

    request: ConsumerGroupHeartbeatRequest
    min_version: int
    sent_as: int


class ConsumerProtocolMember:
    """The protocol state of one member.

    The client generates ``member_id``, which never changes (KIP-1082). The coordinator assigns ``epoch``; it is
    `NO_EPOCH` outside the group. ``target`` are the partitions that the member may own according to the coordinator,
    None before its first response. ``owned`` are the partitions that the member has taken over. ``membership`` counts
    memberships, to recognise responses to an earlier one. Times are seconds on the world's monotonic clock; ``chance``
    is uniform in [0, 1).
    """

    def __init__(self, config: ConsumerGroupConfig, member_id: str, clock: HeartbeatClock, backoff: Backoff) -> None:
        self.config = config
        self.member_id = member_id
        self.clock = clock
        self.state = MemberState.OUTSIDE
        self.epoch = NO_EPOCH
        self.target: Partitions | None = None
        self.owned: Partitions = {}
        self.membership = 0
        self._backoff = backoff
        self._failures = 0
        self._wants = SubscribedTo()
        self._sent: SubscribedTo | None = None  # in the last heartbeat; None if the next one must contain all fields
        self._acknowledge = False
        self._sent_pattern = False
        self._hurry = False

    # ---------------------------------------------------------------- state

    @property
    def in_group(self) -> bool:
        """Whether the coordinator has accepted it."""
        return self.state in (MemberState.RECONCILING, MemberState.STABLE)

    @property
    def heartbeats(self) -> bool:
        """Whether heartbeats are to be sent."""
        return self.in_group or self.state is MemberState.JOINING

    @property
    def due_at(self) -> float:
        """When the next heartbeat is due: at once if there are changes, unless the last one has just failed."""
        if self.clock.backs_off:
            return self.clock.next_at
        news = self._sent is None or self._sent != self._wants or self._acknowledge or self._hurry
        return _AT_ONCE if news else self.clock.next_at

    # ---------------------------------------------------------------- changes by the user

    def subscribe(self, wants: SubscribedTo) -> bool:
        """Change the subscription. Return whether it differs from the present one."""
        if wants == self._wants:
            return False
        self._wants = wants
        if self.state is MemberState.STABLE:
            # Topics whose assignment was ignored may be subscribed again, although the target is the same.
            self.state = MemberState.RECONCILING
        return True

    def join(self) -> None:
        """Begin a membership without partitions."""
        if self.state is not MemberState.OUTSIDE:
            raise errors.IllegalStateError(f"the member cannot join, it is {self.state.value}")
        self._reset_membership(MemberState.JOINING)
        self.epoch = _JOINING_EPOCH

    def settle(self, owned: Partitions, *, complete: bool) -> None:
        """Note that the member owns ``owned`` now; ``complete`` if that is all of the target that it can own."""
        if not self.in_group:
            raise errors.IllegalStateError(f"a member that is {self.state.value} owns nothing")
        self.owned = owned
        self.state = MemberState.STABLE if complete else MemberState.RECONCILING
        self._acknowledge = True

    def released(self) -> None:
        """Note that the lost partitions were dropped: the member may join again."""
        if self.state is MemberState.LOST:
            self.state = MemberState.OUTSIDE

    def hurry(self) -> None:
        """Make the next heartbeat due now: a commit waits for the new epoch."""
        self._hurry = True

    # ---------------------------------------------------------------- heartbeats

    def heartbeat(self, now: float) -> Heartbeat:
        """Return the heartbeat to send now, without fields that the coordinator knows already."""
        if not self.heartbeats:
            raise errors.IllegalStateError(f"no heartbeats are due of a member that is {self.state.value}")
        config, wants, sent = self.config, self._wants, self._sent
        everything = sent is None
        pattern = wants.pattern
        if pattern is None and self._sent_pattern:
            pattern = ""  # null would keep the old pattern
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=config.group_instance_id,
            rack_id=config.rack_id if everything else None,
            rebalance_timeout_ms=config.rebalance_timeout_ms if everything else -1,
            subscribed_topic_names=list(wants.topics) if sent is None or sent.topics != wants.topics else None,
            subscribed_topic_regex=pattern if sent is None or sent.pattern != wants.pattern else None,
            server_assignor=config.server_assignor if everything else None,
            topic_partitions=_as_topics(self.owned) if everything or self._acknowledge else None,
        )
        self._sent, self._acknowledge, self._hurry = wants, False, False
        self._sent_pattern = self._sent_pattern or wants.pattern is not None
        self.clock.sent(now)

        min_version = _FIRST_WITH_PATTERN if request.subscribed_topic_regex is not None else 0
        return Heartbeat(request, min_version, self.membership)

    def answered(
        self, response: ConsumerGroupHeartbeatResponse, sent_as: int, *, now: float, chance: float
    ) -> errors.KafkaError | None:
        """Process the response to a heartbeat. Return an error after which to send it again, after a back-off.

        Raises:
            KafkaError: an error that is not retriable. A joining member is out again; a member of the group continues
                to try.
        """
        self.clock.answered(now)
        if sent_as != self.membership:
            return None
        if response.error_code:
            return self._refused(errors.for_code(response.error_code), response.error_message or "", now, chance)
        joined = self.state is MemberState.JOINING
        if not joined:
            self._failures = 0  # a member removed right after its join keeps backing off
        self.epoch = response.member_epoch
        self.member_id = response.member_id or self.member_id
        if response.heartbeat_interval_ms > 0:
            self.clock.interval = max(response.heartbeat_interval_ms / 1000, _LEAST_INTERVAL)
        if joined:
            self.state = MemberState.STABLE
        if response.assignment is not None:
            self._take_target(
                {topic.topic_id: frozenset(topic.partitions) for topic in response.assignment.topic_partitions}
            )
        return None

    def _take_target(self, target: Partitions) -> None:
        before, self.target = self.target, target
        if target == before:
            return
        if before is not None and target == self.owned:
            # The coordinator has withdrawn a revocation. It waits for the report that the member kept everything.
            self.settle(self.owned, complete=True)
        else:
            self.state = MemberState.RECONCILING

    def _refused(self, error: type[errors.KafkaError], why: str, now: float, chance: float) -> errors.KafkaError | None:
        group_id = self.config.group_id
        about = f"group {group_id!r} refused the heartbeat of member {self.member_id}: {why or error.advice}"
        # The coordinator may have lost the whole group with its disk; the first member to join creates it again.
        is_lost = error is errors.GroupIdNotFoundError and self.state is not MemberState.JOINING
        if is_lost or error in (errors.FencedMemberEpochError, errors.UnknownMemberIdError):
            self._failures += 1
            if self.state is not MemberState.JOINING:
                self.forget_membership(why or error.advice)
            # The first time it may rejoin at once; a member that is removed repeatedly backs off.
            if self._failures > 1:
                self._back_off(now, chance)
            return error(about)
        if error is errors.FencedInstanceIdError:
            # Another member owns the instance id now: do not even send a leave request for it.
            self.forget_membership("another member has this group_instance_id")
            raise error(f"another member of group {group_id!r} has this group_instance_id. {error.advice}".rstrip())
        self.unanswered(now, chance)
        if error.retriable:
            return error(about)
        if error is errors.UnreleasedInstanceIdError:
            return error(
                f"group_instance_id={self.config.group_instance_id!r} still belongs to another member of group"
                f" {group_id!r}. {error.advice}"
            )
        self.refused()
        if error is errors.UnsupportedVersionError:
            raise unsupported(group_id, why)
        raise error(f"{about}. {error.advice}" if why and error.advice else about)

    def unanswered(self, now: float, chance: float) -> None:
        """Send all fields again after a back-off: a heartbeat failed, or its response was lost."""
        self._failures += 1
        self._back_off(now, chance)

    def refused(self) -> None:
        """Stop joining after an error that is not retriable; the user may try again."""
        if self.state is MemberState.JOINING:
            self._end(MemberState.OUTSIDE)

    def _back_off(self, now: float, chance: float) -> None:
        self._sent = None
        self.clock.failed(now, self._backoff.delay(self._failures, chance))

    # ---------------------------------------------------------------- the end of a membership

    def forget_membership(self, reason: str) -> None:
        """Forget the membership: the group has removed this member, and its partitions may have other owners."""
        self._end(MemberState.LOST)

    def leave(self) -> ConsumerGroupHeartbeatRequest | None:
        """Return the request that ends the membership; None without one.

        A static member leaves temporarily: the group keeps its partitions for it until the session expires.
        """
        if not self.heartbeats:
            return None
        instance_id = self.config.group_instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            member_epoch=_LEAVING_EPOCH if instance_id is None else _LEAVING_FOR_NOW_EPOCH,
            instance_id=instance_id,
        )

    def left(self) -> None:
        """Forget the membership, which ended on purpose; the next join starts from nothing."""
        self._failures = 0
        self._end(MemberState.OUTSIDE)

    def _end(self, state: MemberState) -> None:
        self._reset_membership(state)
        self.epoch = NO_EPOCH

    def _reset_membership(self, state: MemberState) -> None:
        self.state = state
        self.membership += 1
        self.target, self.owned = None, {}
        self._sent, self._acknowledge, self._sent_pattern, self._hurry = None, False, False, False


def unsupported(group_id: str, why: str, *, pattern: bool = False) -> errors.UnsupportedVersionError:
    """Return the error for a cluster without the consumer protocol, with it disabled, or without patterns."""
    text = (
        f"the cluster does not offer the consumer protocol (KIP-848) to group {group_id!r}:"
        f" {why or 'it is switched off'}. Set group_protocol='classic', or run Kafka 4.0 or later with the feature"
        " group.version at 1 (bin/kafka-features.sh upgrade --feature group.version=1)"
    )
    if pattern:
        text += ". Before 4.0 brokers apply no SubscriptionPattern; a str or re.Pattern is applied by the consumer"
    return errors.UnsupportedVersionError(text)


def _as_topics(partitions: Partitions) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()]
