"""Random schedules of classic groups: members join, sync, send wrong requests, die, disconnect and restart; leadership
changes; the log fails, lags and loses its end.

In every schedule the log replays into the state, generations of a group only grow, no partition has two owners in one
generation, responses contain only committed state, a member that sends requests in time stays and a silent one is
removed, and every request has one response; and once there are no more faults, the group is stable within its timeouts
and every partition is owned.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from tests.property.coordinator_life import CoordinatorLife, CountedReply, code, watched
from tests.property.lives import Draw, survive
from tests.unit.coordinator.rig import PARTITION, subscription
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import restore_group
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import Change, CommittedOffset, GroupChange, OffsetChange, OffsetKey
from triokafka.protocol.stored.group_metadata import GroupMetadataValue

GROUPS = ("a", "b")
PARTITIONS = range(4)
SESSION = 10.0
REBALANCE = 15.0
NEW_MEMBER = 300.0
RETENTION = 120
TOLERANCE = 1e-3

REJOIN, UNKNOWN, ILLEGAL, FENCED, ID_REQUIRED, FULL, INCONSISTENT = 27, 25, 22, 82, 79, 81, 23


@dataclass(eq=False)
class Client:
    """One consumer process, which acts on its last response."""

    name: str
    group_id: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    next_step: str = "join"
    alive: bool = True
    forgets_to_sync: bool = False
    owned: tuple[int, ...] = ()
    waiting: list[tuple[CountedReply, Callable[[Any], None]]] = field(default_factory=list)

    def rejoin_afresh(self) -> None:
        self.member_id, self.generation, self.leads, self.next_step, self.owned = "", -1, (), "join", ()


class GroupLife(CoordinatorLife):
    """The actions of clients, tools, time, leadership and the log."""

    STEPS: ClassVar = {
        "everybody_carries_on": 14,
        "somebody_new": 5,
        "join_again": 5,
        "sync_anyhow": 3,
        "heartbeat": 4,
        "leave": 3,
        "die": 3,
        "forget_to_sync": 2,
        "restart": 4,
        "hang_up": 3,
        "lie": 3,
        "commit": 5,
        "delete_offsets": 1,
        "delete_group": 2,
        "look_around": 2,
        "pass_time": 7,
        "appends_fail": 4,
        "commits_lag_or_not": 4,
        "high_watermark_moves": 5,
        "coordinator_restarts": 3,
        "leadership_moves_away": 1,
        "leadership_comes": 2,
        "some_of_the_log_is_read": 5,
        "late_news_of_leadership": 2,
        "log_cannot_be_read": 1,
    }

    def __init__(self, draw: Draw) -> None:
        self.clients: list[Client] = []
        self.number = 0
        self.owners: dict[tuple[str, int, int, int], str] = {}
        self.acknowledged: dict[OffsetKey, tuple[int, float]] = {}
        self.removed: dict[OffsetKey, int] = {}
        self.contacted_at: dict[tuple[str, str], float] = {}
        self.maybe_contacted_at: dict[tuple[str, str], float] = {}
        self.session_state: dict[tuple[str, str], tuple[int, bool, bool]] = {}
        self.joined_at: dict[tuple[str, int, str], float] = {}
        self.seen: dict[str, tuple[ClassicGroup, int]] = {}
        self.restored: dict[str, tuple[GroupMetadataValue, ClassicGroup]] = {}
        self.begin(
            group_initial_rebalance_delay_ms=draw.of((0, 3_000)),
            group_max_size=draw.of((100, 100, 2)),
            offsets_retention_minutes=RETENTION // 60,
            offsets_retention_check_interval_ms=30_000,
        )
        for instance_id in (None, None, "i1"):
            self.new_client("a", instance_id, 9)

    # --- clients ---

    def somebody_new(self, draw: Draw) -> None:
        if len(self.clients) < 8:
            self.new_client(draw.of(GROUPS), draw.of((None, None, "i1", "i2")), draw.of((3, 9)))

    def new_client(self, group_id: str, instance_id: str | None, version: int) -> None:
        client = Client(f"c{len(self.clients)}", group_id, instance_id, version)
        self.clients.append(client)
        self.send_join(client)

    def join_again(self, draw: Draw) -> None:
        protocols = [("range", subscription("orders")), ("roundrobin", b"")]
        changed = [("range", subscription("orders", "bills")), ("roundrobin", b"")]
        broken = [("roundrobin", b"\xff\xff"), ("range", b"\x00\x05\x7f\xff\xff\xff")]
        self.send_join(draw.of(self.clients), draw.of((protocols, changed, changed[:1], broken, changed[::-1])))

    def everybody_carries_on(self, draw: Draw) -> None:
        rounds, seconds = draw.of((1, 2, 4)), draw.of((0.0, 1.0, 3.0))
        for _ in range(rounds):
            self.one_round(seconds)

    def one_round(self, seconds: float) -> None:
        for client in self.clients:
            if client.alive and not client.waiting:
                self.carry_on(client)
        self.let_pass(seconds)
        self.listen()
        for group in self.rig.shard.groups.values() if self.is_here else ():
            self.note_sessions(group)

    def carry_on(self, client: Client) -> None:
        """Take the next step of a correct client."""
        if client.next_step == "join":
            self.send_join(client)
        elif client.next_step == "sync" and not client.forgets_to_sync:
            self.send_sync(client, 0)
        else:
            self.send_heartbeat(client)

    def send_join(self, client: Client, protocols: list[tuple[str, bytes]] | None = None) -> None:
        group = self.rig.shard.groups.get(client.group_id) if self.is_here else None
        if group is not None and client.instance_id in group.static_members:
            # The static member that it could not replace, because the write failed, has a new session.
            self.maybe_contacted_at[client.group_id, group.static_members[client.instance_id]] = self.now
        reply = self.rig.join(
            client.member_id,
            group_id=client.group_id,
            instance_id=client.instance_id,
            protocols=protocols or [("range", subscription("orders")), ("roundrobin", b"")],
            session_ms=round(SESSION * 1000),
            rebalance_ms=round(REBALANCE * 1000),
            version=client.version,
            client_id=client.name,
        )

        def joined(answer: Any) -> None:
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            client.leads = () if answer.skip_assignment else tuple(m.member_id for m in answer.members)
            client.next_step = "sync"
            assert not client.leads or client.member_id in client.leads

        self.expect(client, reply, joined)

    def sync_anyhow(self, draw: Draw) -> None:
        """Sync, whether or not it is time for it; a leader's assignment may differ from the last one."""
        self.send_sync(draw.of(self.clients), draw.below(4))

    def send_sync(self, client: Client, salt: int) -> None:
        shares: dict[str, list[int]] = {member: [] for member in client.leads}
        for partition in PARTITIONS if shares else ():
            shares[client.leads[(partition + salt) % len(client.leads)]].append(partition)
        group_id, member_id, generation = client.group_id, client.member_id, client.generation
        reply = self.rig.sync(
            member_id,
            generation,
            {member: json.dumps(partitions).encode() for member, partitions in shares.items()},
            group_id=group_id,
            instance_id=client.instance_id,
        )

        def assigned(answer: Any) -> None:
            client.next_step = "heartbeat"
            life = self.check_committed(group_id, generation, member_id, client.instance_id, answer.assignment)
            client.owned = tuple(json.loads(answer.assignment or b"[]"))
            for partition in client.owned:
                name = client.instance_id or member_id
                owner = self.owners.setdefault((group_id, life, generation, partition), name)
                assert owner == name, f"partition {partition} of generation {generation} went to {owner} and {name}"

        self.expect(client, reply, assigned)

    def heartbeat(self, draw: Draw) -> None:
        self.send_heartbeat(draw.of(self.clients))

    def send_heartbeat(self, client: Client) -> None:
        key, asked_at = (client.group_id, client.member_id), self.now
        reply = self.rig.heartbeat(
            client.member_id, client.generation, group_id=client.group_id, instance_id=client.instance_id
        )
        self.expect(client, reply, lambda _: self.contacted_at.update({key: asked_at}))

    def leave(self, draw: Draw) -> None:
        """The member leaves, or an administrator removes instances."""
        client = draw.of(self.clients)
        if draw.one_in(4):
            instances = [("", "i1"), ("", "i2"), ("", "nobody")][draw.below(3) :]
            self.expect(None, self.rig.leave(*instances, group_id=client.group_id), lambda _: None)
            return
        leaver = client.member_id if client.instance_id is None else (client.member_id, client.instance_id)
        self.expect(client, self.rig.leave(leaver, group_id=client.group_id), lambda _: None)

    def die(self, draw: Draw) -> None:
        draw.of(self.clients).alive = False

    def forget_to_sync(self, draw: Draw) -> None:
        """The client joins and sends heartbeats, but never syncs; or it starts to do so again."""
        client = draw.of(self.clients)
        client.forgets_to_sync = not client.forgets_to_sync

    def restart(self, draw: Draw) -> None:
        """A new process starts, without the pending requests of the old one."""
        client = draw.of(self.clients)
        client.rejoin_afresh()
        client.alive = True
        client.waiting.clear()

    def hang_up(self, draw: Draw) -> None:
        """The connection breaks during a request, and the client repeats the request."""
        draw.of(self.clients).waiting.clear()

    def lie(self, draw: Draw) -> None:
        """Send a wrong member id, generation, instance id or protocol: it is refused, and nothing changes."""
        if not self.is_here or self.rig.log.will_fail:
            return
        client = draw.of(self.clients)
        group_id, member_id = client.group_id, client.member_id
        group = self.rig.shard.groups.get(group_id)
        before = None if group is None else (group.state, group.generation, list(group.members), group.leader_id)
        generation = 0 if group is None else group.generation
        lies: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
            (lambda: self.rig.heartbeat(f"not-{member_id}", generation, group_id=group_id), (UNKNOWN,)),
            (lambda: self.rig.heartbeat(member_id, generation + 1, group_id=group_id), (UNKNOWN, ILLEGAL)),
            (lambda: self.rig.sync(f"not-{member_id}", generation, group_id=group_id), (UNKNOWN,)),
            (lambda: self.rig.sync(member_id, generation + 1, group_id=group_id), (UNKNOWN, ILLEGAL)),
            (lambda: self.rig.leave(f"not-{member_id}", group_id=group_id), (UNKNOWN,)),
            (lambda: self.rig.leave(("", "nobody"), group_id=group_id), (UNKNOWN,)),
            (lambda: self.rig.join(f"not-{member_id}", group_id=group_id), (UNKNOWN, FULL, INCONSISTENT)),
            (
                lambda: self.rig.heartbeat(f"not-{member_id}", generation, group_id=group_id, instance_id="i1"),
                (UNKNOWN, FENCED),
            ),
            (
                lambda: self.rig.commit(f"not-{member_id}", generation, group_id=group_id),
                (UNKNOWN,) if group is not None else (UNKNOWN, ILLEGAL),
            ),
        ]
        if group is not None and group.members:
            broken = draw.of(([("strange", b"")], [], [("", b"")]))
            lies.append((lambda: self.rig.join(group_id=group_id, protocols=broken), (INCONSISTENT, FULL)))
        request, refusals = draw.of(lies)
        reply = request()
        after = None if group is None else (group.state, group.generation, list(group.members), group.leader_id)
        assert before == after
        assert code(self.refused(reply)) in refusals, (code(reply), refusals)

    def refused(self, reply: Any) -> Any:
        """Wait for a refusal, which may depend on uncommitted state."""
        if not reply.is_set:
            self.rig.commit_log()
        assert reply.is_set
        return reply

    def commit(self, draw: Draw) -> None:
        self.number += 1
        offset, key = self.number, OffsetKey(draw.of(GROUPS), "bills", draw.of(PARTITIONS))
        members = [client for client in self.clients if client.group_id == key.group_id]
        client = draw.of([*members, None])
        identity: dict[str, Any] = {}
        if client is not None:
            identity = {
                "member_id": client.member_id,
                "generation": client.generation,
                "instance_id": client.instance_id,
            }
        reply = self.rig.commit(offsets={("bills", key.partition): offset}, group_id=key.group_id, **identity)
        now = self.now

        def acknowledged(_: Any) -> None:
            if offset > self.removed.get(key, 0):
                self.acknowledged[key] = max(self.acknowledged.get(key, (0, 0.0)), (offset, now))

        self.expect(client, reply, acknowledged)

    # --- tools ---

    def delete_offsets(self, draw: Draw) -> None:
        key = OffsetKey(draw.of(GROUPS), "bills", draw.of(PARTITIONS))
        self.remove(key)
        self.rig.delete_offsets(("bills", key.partition), group_id=key.group_id)

    def delete_group(self, draw: Draw) -> None:
        group_id = draw.of(GROUPS)
        group = self.rig.shard.groups.get(group_id) if self.is_here else None
        refuses = group is not None and bool(group.members)
        reply = self.rig.delete_group(group_id)
        assert not refuses or (reply.is_set and code(reply) == 68)
        if not reply.is_set or code(reply) == 0:
            for number in PARTITIONS:
                self.remove(OffsetKey(group_id, "bills", number))

    def remove(self, key: OffsetKey) -> None:
        self.acknowledged.pop(key, None)
        self.removed[key] = self.number

    def look_around(self, draw: Draw) -> None:
        """Tools receive committed state only."""
        if not self.is_here:
            return
        for group_id in GROUPS:
            described = self.rig.describe(group_id)
            group = self.rig.shard.groups.get(group_id)
            if described.group_state != "Dead" and group is not None:
                assert [m.member_id for m in described.members] == list(group.members)
        assert {g.group_id for g in self.rig.list_groups()} <= {*GROUPS, *self.stored, *self.committed_groups()}

    def committed_groups(self) -> set[str]:
        return {key.group_id for key in self.offsets}

    # --- the invariants ---

    def expect(self, client: Client | None, reply: Any, then: Callable[[Any], None]) -> None:
        if client is None:
            self.clientless.append((reply, then))
        else:
            client.waiting.append((reply, then))
            self.maybe_contacted_at[client.group_id, client.member_id] = self.now

    def begin(self, **config: int) -> None:
        self.clientless: list[tuple[Any, Callable[[Any], None]]] = []
        self.lives: dict[str, int] = {}
        self.assigned: dict[tuple[str, int, int], list[tuple[int, dict[str, bytes]]]] = {}
        self.parts: dict[tuple[str, int, int], dict[str, bytes]] = {}
        super().begin(**config)

    def _fold_afresh(self) -> None:
        self.lives, self.assigned, self.parts = {}, {}, {}
        super()._fold_afresh()

    def fold(self, change: Change, offset: int) -> None:
        """Generations in the log only grow between two tombstones."""
        if isinstance(change, GroupChange):
            before = self.stored.get(change.group_id)
            life = self.lives.get(change.group_id, 0)
            if change.value is None:
                self.lives[change.group_id] = life + 1
            else:
                assert before is None or change.value.generation >= before.generation
                members = change.value.members
                assigned = {member.member_id: bytes(member.assignment) for member in members}
                key = (change.group_id, life, change.value.generation)
                self.assigned.setdefault(key, []).append((offset, assigned))
                parts = {member.group_instance_id or member.member_id: bytes(member.assignment) for member in members}
                assert self.parts.setdefault(key, parts) == parts, "a second assignment of one generation is in the log"
        elif isinstance(change, OffsetChange) and change.value is None:
            self.check_removal(change.key, self.offsets.get(change.key))
        super().fold(change, offset)

    def check_removal(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        """Do nothing here; subclasses may check more."""

    def check_committed(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, assignment: bytes
    ) -> int:
        """Check that the assignment in a response is in the log, and committed.

        Returns the incarnation of the group.
        """
        self.follow_log()
        high_watermark = self.rig.log.high_watermark(PARTITION)
        for life in range(self.lives.get(group_id, 0), -1, -1):
            for offset, assigned in self.assigned.get((group_id, life, generation), ()):
                if offset < high_watermark and assigned.get(member_id) == assignment:
                    return life
                if instance_id is not None and offset < high_watermark and assignment in assigned.values():
                    return life
        raise AssertionError(f"{member_id} received an assignment of generation {generation} that is not committed")

    def check(self) -> None:
        super().check()
        self.listen()
        if not self.is_here:
            return
        for key, (offset, at) in self.acknowledged.items():
            if self.now - at < RETENTION:
                found = self.rig.shard.offsets.read(key)
                assert found is not None and found.offset >= offset, (key, offset, found)

    def listen(self) -> None:
        for client in self.clients:
            if not client.waiting:
                continue
            arrived = [(reply, then) for reply, then in client.waiting if reply.is_set]
            if not arrived:
                continue
            client.waiting[:] = [(reply, then) for reply, then in client.waiting if not reply.is_set]
            for reply, then in arrived:
                self.receive(client, reply, then)
        for reply, then in self.clientless:
            if reply.is_set and code(reply) == 0:
                then(reply.value)
        self.clientless = [(reply, then) for reply, then in self.clientless if not reply.is_set]

    def receive(self, client: Client, reply: CountedReply, then: Callable[[Any], None]) -> None:
        answered = code(reply)
        self.maybe_contacted_at[client.group_id, client.member_id] = self.now
        if answered == 0:
            then(reply.value)
        elif answered == ID_REQUIRED:
            client.member_id = reply.value.member_id
        elif answered == REJOIN:
            client.next_step = "join"
        elif answered in (UNKNOWN, ILLEGAL):
            client.rejoin_afresh()
        elif answered in (FENCED, FULL):
            client.rejoin_afresh()
            client.alive = False  # real clients stop, too

    def check_shard(self, shard: GroupShard) -> None:
        super().check_shard(shard)
        assert shard.groups.keys() == self.stored.keys() | {key.group_id for key in self.offsets}
        for group_id, group in shard.groups.items():
            stored = self.stored.get(group_id)
            if stored is not None:
                self.check_stored(group, stored)
            self.check_group(group)
            self.check_sessions(group)
        wanted = {
            rebalance.session_timer(g, m) for g in shard.groups.values() for m in (*g.members, *g.pending_members)
        }
        there = {key for key in shard.timers._deadlines if key.kind == rebalance.SESSION}
        assert there == wanted, f"sessions without a member: {there - wanted}, members without: {wanted - there}"

    def check_stored(self, group: ClassicGroup, stored: GroupMetadataValue) -> None:
        assert group.generation >= stored.generation
        before, generation = self.seen.get(group.group_id, (None, 0))
        assert before is not group or group.generation >= generation
        self.seen[group.group_id] = (group, group.generation)
        if group.state is not GroupState.STABLE or any(m.awaits_join for m in group.members.values()):
            return
        value, other = self.restored.get(group.group_id, (None, None))
        if value is not stored or other is None:
            other = restore_group(group.group_id, stored)
            self.restored[group.group_id] = (stored, other)
        assert group.generation == other.generation
        assert {m: v.assignment for m, v in group.members.items()} == {
            m: v.assignment for m, v in other.members.items()
        }
        assert (group.leader_id, group.static_members) == (other.leader_id, other.static_members)
        assert (group.protocol, group.protocol_type) == (other.protocol, other.protocol_type)

    def check_group(self, group: ClassicGroup) -> None:
        joining = [m for m in group.members.values() if m.awaits_join]
        assert group.joins_waiting == len(joining)
        assert group.state is not GroupState.DEAD
        assert (group.leader_id is None) == (not group.members)
        assert group.leader_id is None or group.leader_id in group.members
        assert bool(group.members) == (group.state is not GroupState.EMPTY) or (
            group.state is GroupState.PREPARING_REBALANCE
        )
        assert all(group.members[m].instance_id == i for i, m in group.static_members.items())
        assert len(group.members) <= self.rig.config.group_max_size or group.state is not GroupState.STABLE
        assert group.pending_syncs.keys() <= group.members.keys()
        assert not group.members.keys() & group.pending_members.keys()
        for member_id in group.pending_syncs:
            since = self.joined_at.setdefault((group.group_id, group.generation, member_id), self.now)
            assert self.now <= since + REBALANCE + TOLERANCE, f"{member_id} has not synced, but is still a member"
        for member_id, member in group.members.items():
            assert member.member_id == member_id
            if group.state is GroupState.STABLE:
                assert member.sync_reply is None
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert member.join_reply is None

    def check_sessions(self, group: ClassicGroup) -> None:
        """No silent member stays."""
        self.note_sessions(group)
        for member_id, member in group.members.items():
            silent = self.now - self.maybe_contacted_at[group.group_id, member_id]
            longest = NEW_MEMBER if member.is_new else member.session_timeout_ms / 1000
            assert silent <= longest + TOLERANCE, f"{member_id} is silent for {silent:g} seconds, but still a member"

    def note_sessions(self, group: ClassicGroup) -> None:
        """Sessions restart with each generation, and with each late response."""
        for member_id, member in group.members.items():
            key = (group.group_id, member_id)
            session_state = (group.generation, member.is_new, member.is_waiting)
            if self.session_state.get(key) != session_state or member.is_waiting:
                self.maybe_contacted_at[key] = self.now
            self.session_state[key] = session_state

    def loaded(self) -> None:
        self.seen.clear()
        self.joined_at.clear()
        for key in self.maybe_contacted_at:
            self.maybe_contacted_at[key] = self.now

    def let_pass(self, seconds: float) -> None:
        """Members of a stable group that sent requests within their session still exist afterwards."""
        safe: list[tuple[str, str]] = []
        if self.is_here and seconds <= REBALANCE:
            for group in self.rig.shard.groups.values():
                if group.state is GroupState.STABLE:
                    ends = self.now + seconds + TOLERANCE
                    keys = [(group.group_id, m) for m in group.members if m not in group.pending_syncs]
                    safe += [key for key in keys if self.contacted_at.get(key, 0.0) + SESSION > ends]
        super().let_pass(seconds)
        for group_id, member_id in safe:
            assert member_id in self.rig.shard.groups[group_id].members, (
                f"{member_id} sent requests in time, but was removed"
            )

    # --- the end ---

    def finish(self) -> None:
        self.end_faults()
        self.become_stable()
        for client in self.clients:
            client.alive = False
        self.let_pass(NEW_MEMBER + 2 * (REBALANCE + SESSION))
        self.check()
        assert all(group.state is GroupState.EMPTY for group in self.rig.shard.groups.values())
        self.let_pass(RETENTION + 60)
        self.check()
        assert not self.stored and not self.offsets, "groups and offsets that are unused long enough must be removed"
        assert not self.rig.shard.groups
        self.check_all_answered()

    def become_stable(self) -> None:
        """All living clients behave correctly: soon each group is stable, and each of its partitions is owned by one of
        them.
        """
        for client in self.clients:
            client.forgets_to_sync = False
            client.waiting[:] = [(reply, then) for reply, then in client.waiting if not reply.is_set]
        ends = self.now + 2 * REBALANCE + 2 * SESSION
        while self.now < ends:
            self.one_round(3.0)
            self.check()
            if all(self.is_settled(group_id) for group_id in GROUPS):
                break
        for group_id in GROUPS:
            assert self.is_settled(group_id), self.rig.shard.groups[group_id]

    def is_settled(self, group_id: str) -> bool:
        alive = [client for client in self.clients if client.alive and client.group_id == group_id]
        group = self.rig.shard.groups.get(group_id)
        if group is None or not alive:
            return group is None or group.state in (GroupState.EMPTY, GroupState.STABLE)
        if group.state is not GroupState.STABLE or group.members.keys() != {c.member_id for c in alive}:
            return False
        if any(client.generation != group.generation or client.waiting for client in alive):
            return False
        return sorted(p for client in alive for p in client.owned) == list(PARTITIONS)


def test_invariants_hold_in_random_schedules() -> None:
    """The log replays to the durable state, generations grow, each partition has one owner, every request has a
    response.
    """
    with watched():
        survive(GroupLife, range(500))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_groups_survive_very_many_random_lives() -> None:
    """The same, for as long as the long run takes."""
    with watched():
        survive(GroupLife, range(20_000))
