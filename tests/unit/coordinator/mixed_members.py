"""Simulated members of both protocols for tests of mixed groups; each reacts to responses as a real client does."""

from __future__ import annotations

from uuid import UUID

from tests.unit.coordinator.rig import TOPIC_IDS, Rig
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.consumer_group.member import partitions_of
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.sync_group import SyncGroupResponse
from triokafka.protocol.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopic,
)

ORDERS = TOPIC_IDS["orders"]
_ANEW = (UnknownMemberIdError.code, IllegalGenerationError.code)


def metadata(*topics: str, owned: tuple[int, ...] | None = None, version: int | None = None) -> bytes:
    """Encode a classic consumer's subscription; with ``owned`` partitions of ``orders`` the member is cooperative."""
    subscription = ConsumerProtocolSubscription(
        topics=list(topics or ("orders",)),
        owned_partitions=[OwnedTopic(topic="orders", partitions=list(owned))] if owned else [],
    )
    return subscription.encode_versioned((0 if owned is None else 1) if version is None else version)


def assignment(*numbers: int, topic: str = "orders", user_data: bytes | None = None) -> bytes:
    """Encode a leader's assignment for one member."""
    assigned = [AssignedTopic(topic=topic, partitions=list(numbers))] if numbers else []
    return ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data).encode_versioned(1)


def numbers_of(data: bytes) -> list[int]:
    """Return the partition numbers in an assignment."""
    if not data:
        return []
    found = ConsumerProtocolAssignment.decode_versioned(data).assigned_partitions
    return [number for topic in found for number in topic.partitions]


class ClassicMember:
    """A classic consumer; ``step`` performs its next action.

    A cooperative one retains its partitions while it joins, and rejoins after it has revoked some.
    """

    def __init__(self, rig: Rig, name: str, *, cooperative: bool = False, instance_id: str | None = None) -> None:
        self.rig = rig
        self.name = name
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.joining: Reply[JoinGroupResponse] | None = None
        self.is_stable = False
        self._synced: Reply[SyncGroupResponse] | None = None

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        name = "cooperative-sticky" if self.cooperative else "range"
        return [(name, metadata(owned=tuple(sorted(self.owned)) if self.cooperative else None))]

    def step(self) -> None:
        """Join, sync or heartbeat, whichever is next."""
        if self.is_stable:
            self._heartbeat()
        elif self.joining is None:
            self._join()
        elif self.joining.is_set:
            self._joined()

    def _join(self) -> None:
        if not self.cooperative:
            self.owned.clear()
        self.joining = self.rig.join(
            self.member_id,
            protocols=self.protocols,
            instance_id=self.instance_id,
            client_id=self.name,
            version=9,
        )
        if self.joining.is_set:
            self._joined()

    def _joined(self) -> None:
        assert self.joining is not None
        response, self.joining = self.joining.value, None
        if response.error_code == MemberIdRequiredError.code:
            self.member_id = response.member_id
            self._join()
        elif self._is_well(response.error_code):
            self.member_id, self.generation = response.member_id, response.generation_id
            self._sync(response)

    def _sync(self, response: JoinGroupResponse) -> None:
        given: dict[str, list[int]] = {}
        if response.leader == self.member_id and not response.skip_assignment:
            ids = [member.member_id for member in response.members]
            owners = {
                number: member.member_id
                for member in response.members
                for topic in ConsumerProtocolSubscription.decode_versioned(member.metadata).owned_partitions
                for number in topic.partitions
            }
            for number in range(self.rig.topics.partition_count("orders")):
                member_id = ids[number % len(ids)]
                if owners.get(number, member_id) == member_id:  # otherwise the owner must revoke it first
                    given.setdefault(member_id, []).append(number)
        reply = self.rig.sync(
            self.member_id,
            self.generation,
            {member_id: assignment(*numbers) for member_id, numbers in given.items()},
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=response.protocol_name,
        )
        assert reply.is_set or response.leader != self.member_id
        self._synced = reply
        self.is_stable = True

    def _take(self) -> None:
        """Apply the response to the SyncGroup."""
        reply = self._synced
        if reply is None or not reply.is_set:
            return
        self._synced = None
        if not self._is_well(reply.value.error_code):
            return
        assigned = set(numbers_of(reply.value.assignment))
        gives_up = self.owned - assigned
        self.owned = assigned
        if gives_up:
            self.is_stable = False

    def _heartbeat(self) -> None:
        if self._synced is not None:
            self._take()
            return
        reply = self.rig.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
        try:
            error_code = reply.value.error_code
        except (UnknownMemberIdError, IllegalGenerationError) as error:
            error_code = error.code
        self._is_well(error_code)

    def _is_well(self, error_code: int) -> bool:
        if error_code == 0:
            return True
        assert error_code in (*_ANEW, RebalanceInProgressError.code), error_code
        self.is_stable = False
        if error_code in _ANEW:
            self.owned.clear()
            self.generation = -1
            if error_code == UnknownMemberIdError.code:
                self.member_id = ""
        return False

    def leave(self) -> None:
        """Leave the group."""
        self.owned.clear()
        self.rig.leave(self.member_id)


class ConsumerMember:
    """A consumer of the consumer protocol."""

    def __init__(self, rig: Rig, name: str, *, instance_id: str | None = None) -> None:
        self.rig = rig
        self.member_id = name
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[int] = set()

    def step(self) -> None:
        """Send one heartbeat."""
        response = self.rig.beat(
            Beat(
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=self.instance_id,
                rack_id=None,
                rebalance_timeout_ms=5_000,
                topic_names=frozenset({"orders"}),
                pattern=None,
                server_assignor=None,
                owned=partitions_of([(ORDERS, sorted(self.owned))]),
                client_id="c",
                client_host="/h",
            )
        ).value
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {number for topic in response.assignment.topic_partitions for number in topic.partitions}

    def leave(self) -> None:
        """Leave the group."""
        self.owned.clear()
        self.rig.last_beat(self.member_id, instance_id=self.instance_id)


Member = ClassicMember | ConsumerMember


def settle(rig: Rig, *members: Member, rounds: int = 12) -> None:
    """Let every member act in effects, and check that no partition ever has two owners."""
    for _ in range(rounds):
        for member in members:
            member.step()
            owners: dict[int, Member] = {}
            for one in members:
                for number in one.owned:
                    assert number not in owners, f"partition {number} has two owners"
                    owners[number] = one
        rig.pass_time(1)


def held(progress_assigned: dict[UUID, dict[int, int]]) -> list[int]:
    """Return the partition numbers of ``orders`` in a member's stored progress."""
    return sorted(progress_assigned.get(ORDERS, {}))
