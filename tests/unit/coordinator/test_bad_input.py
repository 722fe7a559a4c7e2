"""Malformed and malicious requests: the right error, bounded state, and no effect on other groups.

State is counted: members, pending members, parked requests, timers, groups, offsets.
"""

from __future__ import annotations

import struct

import pytest

from tests.unit.coordinator.rig import PARTITION, RANGE, Rig, code, subscription
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    MessageSizeTooLargeError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.join_group import JoinGroupResponse

UNKNOWN = UnknownMemberIdError.code
FENCED = FencedInstanceIdError.code
ILLEGAL = IllegalGenerationError.code
MANY = 10_000

MALFORMED = [
    pytest.param(b"", id="empty"),
    pytest.param(b"\x00", id="half a version"),
    pytest.param(b"\xff\xff" + subscription("orders")[2:], id="negative version"),
    pytest.param(b"\x7f\xff" + subscription("orders")[2:], id="unknown version"),
    pytest.param(subscription("orders")[:-3], id="truncated"),
    pytest.param(b"\x00\x00\x7f\xff\xff\xff", id="two billion topics"),
    pytest.param(b"\x00\x00\xff\xff\xff\xfe", id="negative number of topics"),
    pytest.param(b"\x00\x00\x00\x00\x00\x01\x00\x02\xc3\x28" + b"\xff" * 4, id="topic that is not UTF-8"),
    pytest.param(b"\x00\x01" + subscription("orders")[2:] + b"\x7f\xff\xff\xff", id="two billion owned topics"),
    pytest.param(b"\xde\xad\xbe\xef" * 1_000, id="noise"),
]


class UnaffectedGroup:
    """A stable group beside the group under test; `check` asserts that it is unaffected."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.members, self.generation = rig.stable_group(2, group_id="steady", session_ms=1_800_000)
        assert code(rig.commit(self.members[0], self.generation, group_id="steady")) == 0

    def check(self) -> None:
        """Assert that the group is unchanged and its members are served."""
        group = self.rig.group("steady")
        assert (list(group.members), group.generation, group.state) == (
            self.members,
            self.generation,
            GroupState.STABLE,
        )
        for member in self.members:
            assert code(self.rig.heartbeat(member, self.generation, group_id="steady")) == 0
        assert self.rig.offset(group_id="steady") == 5


def timers_of(rig: Rig, group_id: str) -> int:
    """Return the number of deadlines of a group."""
    return sum(key.entity_id == group_id for key in rig.shard.timers._deadlines)


# --- metadata and assignments ---


@pytest.mark.parametrize("metadata", MALFORMED)
def test_coordinator_passes_malformed_subscriptions_to_the_leader(metadata: bytes) -> None:
    """The coordinator stores them unchanged and does not expire offsets because of them."""
    rig = Rig()
    peace = UnaffectedGroup(rig)
    replies = [rig.join(protocols=[("range", metadata)]), rig.join()]
    rig.pass_time(9)
    leader, follower = (reply.value for reply in replies)
    assert {member.member_id: member.metadata for member in leader.members} == {
        leader.member_id: metadata,
        follower.member_id: RANGE[1],
    }
    assert code(rig.sync(leader.member_id, 1, {follower.member_id: b"f"})) == 0
    assert code(rig.commit(leader.member_id, 1, {("bills", 0): 3})) == 0
    rig.restart()
    assert rig.group().members[leader.member_id].metadata("range") == metadata
    assert code(rig.heartbeat(follower.member_id, 1)) == 0
    assert rig.offset("bills") == 3
    peace.check()


@pytest.mark.parametrize("assignment", MALFORMED)
def test_coordinator_passes_malformed_assignments_to_their_members(assignment: bytes) -> None:
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (leader, follower), generation = rig.joined_group()
    assert code(rig.sync(leader, generation, {follower: assignment, "unknown": b"x", "": b"y"})) == 0
    assert rig.sync(follower, generation).value.assignment == assignment
    rig.restart()
    assert rig.sync(follower, generation).value.assignment == assignment
    assert rig.sync(leader, generation).value.assignment == b""
    peace.check()


def test_assignments_for_unknown_members_are_not_stored() -> None:
    rig = Rig()
    (leader, _), generation = rig.joined_group()
    written = len(rig.log.records[PARTITION])
    assert code(rig.sync(leader, generation, {f"unknown-{i}": b"x" * 100 for i in range(MANY)})) == 0
    (record,) = rig.log.records[PARTITION][written:]
    assert record.value is not None and len(record.value) < 1_000


def test_repeated_protocol_of_a_member_counts_once() -> None:
    """A member cannot vote twice for a protocol, or count as several supporters."""
    rig = Rig()
    rig.join(protocols=[RANGE] * 50)
    other = rig.join(protocols=[("roundrobin", b""), RANGE])
    rig.pass_time(9)
    assert other.value.protocol_name == "range"
    assert code(rig.join(protocols=[("roundrobin", b"")])) == InconsistentGroupProtocolError.code
    rig.leave(*list(rig.group().members))
    assert rig.group()._supporters == {}


@pytest.mark.parametrize("name", ["", "x" * 32_767, "no\x00good", "\N{PILE OF POO}" * 8_000])
def test_protocol_names_of_any_content_are_accepted(name: str) -> None:
    rig = Rig()
    members, generation = rig.stable_group(protocols=[(name, b"")], protocol_type="t" * 32_767)
    rig.restart()
    assert (rig.group().protocol, list(rig.group().members)) == (name, members)
    assert code(rig.heartbeat(members[0], generation)) == 0


@pytest.mark.parametrize("name", ["c" * 32_767, "\N{PILE OF POO}" * 8_191, "i" * 32_740])
@pytest.mark.parametrize("static", [False, True])
def test_member_id_fits_a_record_for_client_ids_of_any_length(name: str, static: bool) -> None:
    """The coordinator cuts the client id or instance id at the start of the member id."""
    rig = Rig()
    reply = rig.join(client_id=name, instance_id=name if static else None)
    rig.pass_time(9)
    member_id = reply.value.member_id
    assert len(member_id.encode()) <= 32_767
    assert member_id[:8_000] == name[:8_000]
    assert member_id[-36:].count("-") == 4
    assert code(rig.sync(member_id, 1, {member_id: b"all"}, instance_id=name if static else None)) == 0
    rig.restart()
    assert list(rig.group().members) == [member_id]


def test_group_too_large_for_a_record_gets_an_error_and_can_shrink() -> None:
    """Its members can still leave, and the smaller group gets an assignment."""
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (leader, follower), generation = rig.joined_group()
    rig.log.fails_with = MessageSizeTooLargeError("too large")
    parked = rig.sync(follower, generation)
    assert code(rig.sync(leader, generation, {follower: b"f" * 2_000_000})) == -1
    assert code(parked) == -1
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.log.fails_with = None
    rig.leave(follower)
    again = rig.join(leader)
    assert code(again) == 0
    assert code(rig.sync(leader, generation + 1, {leader: b"l"})) == 0
    peace.check()


def test_change_that_no_record_can_hold_fails_like_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that cannot be encoded fails the assignment and starts a rebalance."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    rig.group().members[follower].client_host = "h" * 40_000
    parked = rig.sync(follower, generation)
    assert code(rig.sync(leader, generation, {})) == -1
    assert code(parked) == -1
    assert rig.state() is GroupState.PREPARING_REBALANCE


# --- timeouts ---


def test_longest_rebalance_timeout_does_not_extend_sessions() -> None:
    """``group.max.session.timeout.ms`` bounds them instead."""
    rig = Rig()
    rig.joined_group(3, rebalance_ms=2**31 - 1, session_ms=6_000)
    rig.pass_time(6)
    assert rig.group().members == {}
    assert (rig.state(), timers_of(rig, "g")) == (GroupState.EMPTY, 0)


@pytest.mark.parametrize("rebalance_ms", [-1, -(2**31)])
def test_negative_rebalance_timeout_defaults_to_the_session_timeout(rebalance_ms: int) -> None:
    rig = Rig()
    rig.stable_group(2, rebalance_ms=rebalance_ms, session_ms=20_000)
    assert rig.group().rebalance_timeout_ms == 20_000


def test_zero_rebalance_timeout_affects_its_member_only() -> None:
    """Other members' timeouts bound the rebalance; a member with a timeout of zero has no time to sync."""
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (alone,), generation = rig.joined_group(1, rebalance_ms=0)
    assert code(rig.sync(alone, generation, {alone: b"x"})) == UNKNOWN
    assert (rig.state(), timers_of(rig, "g")) == (GroupState.EMPTY, 0)
    replies = [rig.join(rebalance_ms=0), rig.join(rebalance_ms=60_000)]
    rig.pass_time(9)
    assert [code(reply) for reply in replies] == [0, 0]
    member_id = replies[0].value.member_id
    assert code(rig.sync(member_id, replies[0].value.generation_id, {member_id: b"x"})) == 0
    peace.check()


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62])
def test_retention_beyond_the_largest_timestamp_never_expires(retention_ms: int) -> None:
    rig = Rig(offsets_retention_check_interval_ms=86_400_000)
    assert code(rig.commit(retention_ms=retention_ms, version=4)) == 0
    rig.restart()
    rig.pass_time(365 * 86_400.0)
    assert rig.offset() == 5


@pytest.mark.parametrize("retention_ms", [-2, -(2**63)])
def test_negative_retention_uses_the_default(retention_ms: int) -> None:
    rig = Rig()
    assert code(rig.commit(retention_ms=retention_ms, version=4)) == 0
    rig.pass_time(6 * 86_400.0)
    assert rig.offset() == 5


# --- wrong identities ---


@pytest.mark.parametrize("generation", [-(2**31), -1, 0, 2, 2**31 - 1])
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_request_with_a_wrong_generation_changes_nothing(request_name: str, generation: int) -> None:
    """The request does not extend the session."""
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (leader, follower), right = rig.stable_group()
    written, deadline = len(rig.log.records[PARTITION]), session_of(rig, leader)
    rig.pass_time(1)
    ask = {
        "sync": lambda: rig.sync(leader, generation, {follower: b"stolen"}),
        "heartbeat": lambda: rig.heartbeat(leader, generation),
        "commit": lambda: rig.commit(leader, generation),
    }[request_name]
    assert code(ask()) == ILLEGAL  # type: ignore[arg-type]
    assert (rig.state(), rig.group().generation, session_of(rig, leader)) == (GroupState.STABLE, right, deadline)
    assert len(rig.log.records[PARTITION]) == written
    peace.check()


def session_of(rig: Rig, member_id: str) -> float | None:
    return rig.shard.timers.deadline(rebalance.session_timer(rig.group(), member_id))


@pytest.mark.parametrize("request_name", ["join", "sync", "heartbeat", "commit", "leave"])
@pytest.mark.parametrize(("instance_id", "error"), [("i-2", FENCED), ("nobody", UNKNOWN), ("", UNKNOWN)])
def test_request_with_a_wrong_instance_id_changes_nothing(request_name: str, instance_id: str, error: int) -> None:
    rig = Rig()
    peace = UnaffectedGroup(rig)
    joins = [rig.join(instance_id=name) for name in ("i-1", "i-2")]
    rig.pass_time(9)
    liar, victim = (join.value.member_id for join in joins)
    rig.sync(victim, 1), rig.sync(liar, 1, {liar: b"1", victim: b"2"})
    written, deadline = len(rig.log.records[PARTITION]), session_of(rig, victim)
    ask = {
        "join": lambda: rig.join(liar, instance_id=instance_id),
        "sync": lambda: rig.sync(liar, 1, {victim: b"stolen"}, instance_id=instance_id),
        "heartbeat": lambda: rig.heartbeat(liar, 1, instance_id=instance_id),
        "commit": lambda: rig.commit(liar, 1, instance_id=instance_id),
        "leave": lambda: rig.leave((liar, instance_id)),
    }[request_name]
    assert code(ask()) == error  # type: ignore[arg-type]
    assert rig.group().static_members == {"i-1": liar, "i-2": victim}
    assert (rig.state(), session_of(rig, victim)) == (GroupState.STABLE, deadline)
    assert len(rig.log.records[PARTITION]) == written
    peace.check()


def test_assignments_from_a_follower_are_not_applied() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    stolen = rig.sync(follower, generation, {follower: b"everything"})
    assert code(rig.sync(leader, generation, {leader: b"l", follower: b"f"})) == 0
    assert stolen.value.assignment == b"f"


def test_member_of_one_group_is_unknown_in_another() -> None:
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (leader, _), generation = rig.stable_group()
    asked = [
        rig.join(leader, group_id="steady"),
        rig.sync(leader, generation, group_id="steady"),
        rig.heartbeat(leader, generation, group_id="steady"),
        rig.commit(leader, generation, group_id="steady"),
        rig.leave(leader, group_id="steady"),
    ]
    assert [code(reply) for reply in asked] == [UNKNOWN] * 5  # type: ignore[arg-type]
    peace.check()


# --- large numbers ---


def test_ten_thousand_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    """Each has one member entry, at most two deadlines including the group's, and no parked request. Afterwards the
    group is empty, with one record.
    """
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    peace = UnaffectedGroup(rig)
    replies = [rig.join(session_ms=1_800_000) for _ in range(MANY)]
    group = rig.group()
    assert (len(group.members), group.joins_waiting) == (MANY, MANY)
    rig.pass_time(9)
    assert all(code(reply) == 0 for reply in replies)
    assert (group.joins_waiting, len(group.pending_syncs), timers_of(rig, "g")) == (0, MANY, MANY + 1)
    peace.check()
    written = len(rig.log.records[PARTITION])
    rig.pass_time(60)
    assert (group.state, group.members, group.pending_syncs) == (GroupState.EMPTY, {}, {})
    assert (timers_of(rig, "g"), len(rig.log.records[PARTITION]) - written) == (0, 1)
    late = replies[MANY // 2].value
    assert code(rig.sync(late.member_id, late.generation_id)) == UNKNOWN
    assert code(rig.heartbeat(late.member_id, late.generation_id)) == UNKNOWN
    assert len(rig.shard.timers._heap) <= 64 + 2 * len(rig.shard.timers)
    peace.check()


def test_group_max_size_bounds_the_members_among_ten_thousand_joins() -> None:
    """The refused joins leave no state behind."""
    rig = Rig(group_max_size=10)
    peace = UnaffectedGroup(rig)
    codes = [code(rig.join()) for _ in range(MANY)]
    assert codes == [None] * 10 + [GroupMaxSizeReachedError.code] * (MANY - 10)
    assert (len(rig.group().members), timers_of(rig, "g")) == (10, 11)
    peace.check()


def test_ten_thousand_unused_pending_members_are_bounded_and_expire() -> None:
    """At most ``group_max_promised_members`` at a time, and none after the session timeout."""
    rig = Rig(group_max_promised_members=500)
    peace = UnaffectedGroup(rig)
    codes = {code(rig.join(version=4, session_ms=1_800_000)) for _ in range(MANY)}
    assert codes == {MemberIdRequiredError.code}
    assert (len(rig.group().pending_members), timers_of(rig, "g")) == (500, 500)
    peace.check()
    rig.pass_time(1_790)
    peace.check()
    rig.pass_time(20)
    assert (rig.group().pending_members if "g" in rig.shard.groups else {}, timers_of(rig, "g")) == ({}, 0)


def test_members_of_disconnected_clients_expire_after_the_new_member_timeout() -> None:
    """Before version 4 each join without a member id creates a member; it expires after five minutes."""
    rig = Rig()
    peace = UnaffectedGroup(rig)
    (leader,), generation = rig.stable_group(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    for _ in range(1_000):
        rig.join(session_ms=6_000)
    assert len(rig.group().members) == 1_001
    rig.pass_time(300)
    assert (list(rig.group().members), timers_of(rig, "g")) == ([leader], 2)
    assert code(rig.join(leader, session_ms=1_800_000)) == 0
    assert rig.group().generation == generation + 1
    peace.check()


def test_expiry_scan_removes_thousands_of_unused_groups() -> None:
    """Each had one pending member. A tombstone removes the group, and no timer remains."""
    rig = Rig(offsets_retention_check_interval_ms=60_000)
    peace = UnaffectedGroup(rig)
    for i in range(3_000):
        rig.join(group_id=f"g{i}", version=4, session_ms=6_000)
    assert len(rig.shard.groups) == 3_001
    rig.pass_time(121)
    assert list(rig.shard.groups) == ["steady"]
    assert len(rig.shard.timers) == 3
    peace.check()
    rig.restart()
    assert list(rig.shard.groups) == ["steady"]


def test_repeated_requests_of_a_member_do_not_accumulate() -> None:
    """Each member has one parked request; an older one is answered when a newer one arrives."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group()
    joins: list[Reply[JoinGroupResponse]] = [rig.join(leader) for _ in range(MANY)]
    assert [reply.is_set for reply in joins] == [True] * (MANY - 1) + [False]
    assert rig.group().joins_waiting == 1
    assert code(rig.join(follower)) == 0
    syncs = [rig.sync(follower, generation + 1) for _ in range(MANY)]
    assert [reply.is_set for reply in syncs] == [True] * (MANY - 1) + [False]


def test_ten_thousand_requests_of_unknown_members_create_no_groups() -> None:
    rig = Rig()
    peace = UnaffectedGroup(rig)
    written = len(rig.log.records[PARTITION])
    for i in range(MANY):
        assert code(rig.commit(f"m{i}", 1, group_id=f"g{i}")) == ILLEGAL
        assert code(rig.heartbeat(f"m{i}", 1, group_id=f"g{i}")) == UNKNOWN
        assert code(rig.join(f"m{i}", group_id=f"g{i}")) == UNKNOWN
    assert (list(rig.shard.groups), len(rig.log.records[PARTITION])) == (["steady"], written)
    peace.check()


def test_malformed_keys_and_values_are_rejected() -> None:
    """A malformed record of a known kind raises; a record of an unknown kind is skipped."""
    from triokafka.coordinator.group.records import decode

    assert decode(struct.pack(">h", 99) + b"anything", b"x") is None
    assert decode(struct.pack(">h", -1), None) is None
    for key in (None, b"", b"\x00", struct.pack(">h", 2), struct.pack(">h", 2) + b"\x7f\xffx"):
        with pytest.raises(KafkaError):
            decode(key, None)
