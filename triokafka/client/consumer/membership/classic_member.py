"""One member of a group under the classic protocol: join, sync, heartbeat, leave. A plain object that does no I/O.

It writes requests and processes responses, and returns the next step for each response. One member leads the group: it
computes the assignment of all members, with an assignor that all of them support.

    UNJOINED ──join──▶ JOINING ──joined──▶ SYNCING ──synced──▶ STABLE
        ▲                │ error              │ error            │ rebalance, new subscription, lost member id
        └────────────────┴────────────────────┴──────────────────┘
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from triokafka import errors
from triokafka.assignors import NO_RACKS, Assignment, MemberSubscription, PartitionAssignor, PartitionRacks
from triokafka.assignors.assignor import check_assignments
from triokafka.client.consumer.membership.payloads import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from triokafka.structs import TopicPartition

NO_GENERATION: Final = -1
_FIRST_BATCHED_LEAVE: Final = 3
_MAX_REASON: Final = 255  # the broker refuses longer ones


class ClassicState(enum.Enum):
    """A member's state in the protocol."""

    UNJOINED = "not in the group"
    JOINING = "joining"
    SYNCING = "waiting for the assignment"
    STABLE = "in the group"


class JoinStep(enum.Enum):
    """The next step of `ClassicJoin`."""

    SYNC = "send the sync request"
    DONE = "the assignment is here"
    JOIN_AGAIN = "send the join request again, at once"
    BACK_OFF = "wait a little, then join again"
    FIND_COORDINATOR = "look the coordinator up, then join again"


class Identity(NamedTuple):
    """The identity in a request; the response to an earlier identity is ignored."""

    generation: int
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """A member's settings. Times are milliseconds; ``rebalance_timeout_ms`` is ``max_poll_interval_ms``."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    group_instance_id: str | None = None
    rack_id: str | None = None


class ClassicMember:
    """The protocol state of one member.

    ``needs_rejoin`` is the reason to join again, None without one. `SubscriptionState` holds the assigned partitions;
    ``assignment`` is only the last answer of the group.
    """

    def __init__(self, config: GroupConfig, assignors: Sequence[PartitionAssignor]) -> None:
        self.config = config
        self.assignors = list(assignors)
        self.state = ClassicState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.assignor: PartitionAssignor | None = None
        self.is_leader = False
        self.needs_rejoin: str | None = "first join"
        self.lost = False
        """Whether the group took the partitions away before this member revoked them."""
        self.assignment = Assignment()
        self._members: dict[str, MemberSubscription] = {}
        self.must_assign = False
        """Whether this member is the leader and must compute the assignment."""
        self._is_fenced = False
        self._joined_topics: tuple[str, ...] = ()
        self._group_topics: tuple[str, ...] | None = None
        """Cached, because every poll needs it."""
        self.is_in_racks = False
        """Whether any known member names its rack (KIP-881); the leader knows all members."""
        self._reason = "first join"

    @property
    def identity(self) -> Identity:
        """Generation and member id as of now."""
        return Identity(self.generation, self.member_id)

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps its partitions while it rejoins: only if every offered assignor is cooperative."""
        return all(assignor.cooperative for assignor in self.assignors)

    @property
    def heartbeats(self) -> bool:
        """Whether the coordinator expects heartbeats now."""
        return self.state in (ClassicState.SYNCING, ClassicState.STABLE) and self.generation != NO_GENERATION

    def request_rejoin(self, reason: str) -> None:
        """Join again at the next opportunity. The first reason stays."""
        if self.needs_rejoin is None:
            self.needs_rejoin = reason

    def subscription_changed(self, topics: Collection[str]) -> None:
        """Join again if the subscription differs from that of the last join."""
        if tuple(topics) != self._joined_topics:
            self.request_rejoin("the subscription has changed")

    # ---------------------------------------------------------------- join

    def join(self, topics: Sequence[str], owned: Sequence[TopicPartition]) -> JoinGroupRequest:
        """Begin to join with a subscription to ``topics``, owning ``owned``."""
        held = list(owned) if self.cooperative else []
        generation = self.generation
        self._reason = self.needs_rejoin or self._reason
        self.state = ClassicState.JOINING
        self.needs_rejoin = None
        self._joined_topics = tuple(topics)
        self._group_topics = None
        protocols = []
        for assignor in self.assignors:
            subscription = MemberSubscription(
                tuple(topics), assignor.user_data(topics), held, None, generation, self.config.rack_id
            )
            protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(subscription)))
        return JoinGroupRequest(
            group_id=self.config.group_id,
            session_timeout_ms=self.config.session_timeout_ms,
            rebalance_timeout_ms=self.config.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._reason[:_MAX_REASON],
        )

    def joined(self, response: JoinGroupResponse) -> JoinStep:
        """Process the response to `join`.

        Raises:
            KafkaError: the group refuses this member; a retry would not help.
        """
        if self.state is not ClassicState.JOINING:
            raise errors.IllegalStateError(f"a JoinGroup response came for a member that is {self.state.value}")
        if response.error_code:
            self.state = ClassicState.UNJOINED
            return self._join_failed(errors.for_code(response.error_code), response.member_id)
        name = response.protocol_name or ""
        assignor = next((known for known in self.assignors if known.name == name), None)
        if assignor is None:
            self.state = ClassicState.UNJOINED
            self.request_rejoin("the group chose an unknown assignor")
            raise errors.InconsistentGroupProtocolError(
                f"group {self.config.group_id!r} chose the assignor {name!r}; this member offered"
                f" {[known.name for known in self.assignors]}"
            )
        self.state = ClassicState.SYNCING
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.assignor = assignor
        self.lost = False
        self.is_leader = response.leader == response.member_id
        # A static leader that rejoins only gets its old assignment again (KIP-814).
        self.must_assign = self.is_leader and not response.skip_assignment
        self._members = {}
        self._group_topics = None
        if self.is_leader:
            for member in response.members:
                subscription = decode_subscription(member.metadata)
                self._members[member.member_id] = subscription._replace(group_instance_id=member.group_instance_id)
        self.is_in_racks = any(subscription.rack_id for subscription in self._members.values())
        return JoinStep.SYNC

    def _join_failed(self, error: type[errors.KafkaError], member_id: str) -> JoinStep:
        if error is errors.MemberIdRequiredError:
            self.member_id = member_id
            self.request_rejoin(self._reason)  # the same attempt, now with a member id
            return JoinStep.JOIN_AGAIN
        if error is errors.UnknownMemberIdError:
            self.forget_membership("the coordinator does not know this member", keep_member_id=False)
            return JoinStep.JOIN_AGAIN
        if error is errors.IllegalGenerationError:
            self.forget_membership("the generation is over", keep_member_id=True)
            return JoinStep.JOIN_AGAIN
        return self._back_off_or_raise(error, "the join request failed", "refused this member")

    def _back_off_or_raise(self, error: type[errors.KafkaError], reason: str, refusal: str) -> JoinStep:
        self.request_rejoin(reason)
        if error in (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError):
            return JoinStep.FIND_COORDINATOR
        if error is errors.RebalanceInProgressError or error.retriable:
            return JoinStep.BACK_OFF
        if error is errors.FencedInstanceIdError:
            self._fenced()
        raise error(f"group {self.config.group_id!r} {refusal}. {error.advice}".rstrip())

    def interrupted(self) -> None:
        """Join again with the same member id, because the connection of the request broke."""
        if self.state in (ClassicState.JOINING, ClassicState.SYNCING):
            self.state = ClassicState.UNJOINED
            self.request_rejoin("the connection to the coordinator broke")

    # ---------------------------------------------------------------- assign and sync

    @property
    def group_topics(self) -> tuple[str, ...]:
        """The topics of all known members; the leader knows all members, and watches the topics of all."""
        if self._group_topics is None:
            topics = {topic for subscription in self._members.values() for topic in subscription.topics}
            self._group_topics = tuple(sorted(topics.union(self._joined_topics)))
        return self._group_topics

    def assign(self, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> dict[str, Assignment]:
        """Run the assignor over the partitions of the group's topics; for the leader."""
        return self.assignment_function(partition_counts, racks)()

    def assignment_function(
        self, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> Callable[[], dict[str, Assignment]]:
        """Return `assign` as a function for another thread: it reads nothing that changes meanwhile."""
        if self.assignor is None:
            raise errors.IllegalStateError("only the leader computes the assignment, and only after it has joined")
        assignor, members = self.assignor, dict(self._members)

        def assign() -> dict[str, Assignment]:
            assignments = assignor.assign(members, partition_counts, racks)
            check_assignments(assignor, members, assignments)
            return assignments

        return assign

    @property
    def group_size(self) -> int:
        """The number of known members; the leader knows all of them."""
        return len(self._members)

    def sync(self, assignments: Mapping[str, Assignment]) -> SyncGroupRequest:
        """Return the sync request; only the leader's contains assignments."""
        assignor = self.assignor
        return SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor.name if assignor is not None else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(assignment))
                for member_id, assignment in assignments.items()
            ],
        )

    def synced(self, response: SyncGroupResponse) -> JoinStep:
        """Process the response to `sync`; after `JoinStep.DONE` the assignment is in ``assignment``.

        Raises:
            KafkaError: not allowed, or fenced.
        """
        if self.state is ClassicState.UNJOINED:
            # The response to a commit or heartbeat has ended this membership meanwhile.
            if self._is_fenced:
                raise errors.FencedInstanceIdError(
                    f"another member of group {self.config.group_id!r} has this instance id"
                )
            return JoinStep.JOIN_AGAIN
        if self.state is not ClassicState.SYNCING:
            raise errors.IllegalStateError(f"a SyncGroup response came for a member that is {self.state.value}")
        if not response.error_code:
            self.assignment = decode_assignment(response.assignment)
            self.state = ClassicState.STABLE
            if self.assignor is not None:
                self.assignor.on_assignment(self.assignment, self.generation)
            return JoinStep.DONE
        error = errors.for_code(response.error_code)
        self.state = ClassicState.UNJOINED
        if error is errors.RebalanceInProgressError:
            self.request_rejoin("another rebalance began before the assignment came")
            return JoinStep.JOIN_AGAIN
        if error in (errors.UnknownMemberIdError, errors.IllegalGenerationError):
            self.forget_membership("the group has removed this member", keep_member_id=False)
            return JoinStep.JOIN_AGAIN
        return self._back_off_or_raise(error, "the sync request failed", "gave no assignment")

    # ---------------------------------------------------------------- heartbeat and leave

    def heartbeat(self) -> HeartbeatRequest:
        """Return a heartbeat of the present identity."""
        return HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.group_instance_id,
        )

    def heartbeat_answered(self, error_code: int, sent_as: Identity) -> bool:
        """Process the response to a heartbeat. Return False if the coordinator must be looked up again.

        Raises:
            KafkaError: not allowed, fenced, or an error that no heartbeat should cause.
        """
        if not error_code or sent_as != self.identity:
            return True
        error = errors.for_code(error_code)
        if error is errors.RebalanceInProgressError:
            # A member that rejoins already ignores the response to an earlier heartbeat.
            if self.heartbeats:
                self.request_rejoin("the group is rebalancing")
        elif error is errors.IllegalGenerationError:
            self.forget_membership("the generation is over", keep_member_id=True)
        elif error is errors.UnknownMemberIdError:
            self.forget_membership("the coordinator no longer knows this member", keep_member_id=False)
        elif error in (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError):
            return False
        elif not error.retriable:
            if error is errors.FencedInstanceIdError:
                self._fenced()
            raise error(f"a heartbeat to group {self.config.group_id!r} failed. {error.advice}".rstrip())
        return True

    def _fenced(self) -> None:
        # Another member owns the instance id now: do not even send a leave request for it.
        self._is_fenced = True
        self.forget_membership("another member has this group_instance_id", keep_member_id=False)

    def forget_membership(self, reason: str, *, keep_member_id: bool) -> None:
        """Forget the membership: the group has removed this member, and its partitions may have other owners."""
        if self.generation != NO_GENERATION:
            self.lost = True
        self.generation = NO_GENERATION
        if not keep_member_id:
            self.member_id = ""
        if self.state is not ClassicState.JOINING:
            self.state = ClassicState.UNJOINED
        self.request_rejoin(reason)

    @property
    def leaves(self) -> bool:
        """Whether there is a membership to end; static members stay until their session expires."""
        return bool(self.member_id) and self.config.group_instance_id is None

    def leave(self, reason: str) -> Callable[[int], LeaveGroupRequest]:
        """Return a function of the version that builds the request to end the present membership."""
        group_id, member_id = self.config.group_id, self.member_id

        def build(version: int) -> LeaveGroupRequest:
            if version >= _FIRST_BATCHED_LEAVE:
                member = MemberIdentity(member_id=member_id, reason=reason[:_MAX_REASON])
                return LeaveGroupRequest(group_id=group_id, members=[member])
            return LeaveGroupRequest(group_id=group_id, member_id=member_id)

        return build

    def left(self) -> None:
        """Forget the membership, which ended on purpose; the next join starts from nothing."""
        self.state = ClassicState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = ""
        self.is_leader = self.must_assign = False
        self.lost = False
        self._joined_topics = ()
        self._group_topics = None
        self.needs_rejoin = None
        self.request_rejoin("joining anew")
