"""Random lives of classic groups: members join, sync, die and restart, the log fails, lags and forgets.

Whatever happens: the log replays into the state, generations of a group only grow, no partition has two owners in one
generation, what was acknowledged is there, and everybody who asks is answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.coordinator.rig import PARTITION, Rig, code, subscription
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import GroupChange, OffsetKey, decode
from triokafka.coordinator.timers import Moment
from triokafka.coordinator.turn import Reply, Turn
from triokafka.errors import NotLeaderForPartitionError

GROUPS = ("a", "b")
PARTITIONS = range(4)
SESSION_MS = 10_000
REBALANCE_MS = 15_000
RETENTION = 120


@dataclass(eq=False)
class Client:
    """One consumer process, which believes what it was last told."""

    name: str
    group_id: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] = ()
    next_step: str = "join"
    alive: bool = True
    waiting: list[tuple[Reply[Any], Callable[[Any], None]]] = field(default_factory=list)


def loaded_from(rig: Rig) -> GroupShard:
    """A second shard that has read the same log."""
    shard = GroupShard(rig.config, lambda: "none", rig.topics)
    for offset, record in enumerate(rig.log.records.get(PARTITION, [])):
        change = decode(record.key, record.value)
        assert change is not None
        shard.replay(change, offset, committed=True)
    shard.loaded(Turn(Moment(rig.world.now(), rig.world.wall_ms()), shard.timers))
    return shard


class GroupLives(RuleBasedStateMachine):
    """The rules are what clients, time and the log can do."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.rig = Rig(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=max_size,
            offsets_retention_minutes=RETENTION // 60,
            offsets_retention_check_interval_ms=30_000,
        )
        self.clients: list[Client] = []
        self.asked: list[Reply[Any]] = []
        self.lives: dict[str, int] = {}
        self.seen: dict[str, tuple[object, int]] = {}
        self.owners: dict[tuple[str, int, int, int], str] = {}
        self.sent = 0
        self.acknowledged: dict[OffsetKey, tuple[int, float]] = {}
        self.removed: dict[OffsetKey, int] = {}
        for instance_id in (None, None, "i1"):
            self.new_client("a", instance_id, 9)

    # --- clients ---

    @rule(
        group_id=st.sampled_from(GROUPS),
        instance_id=st.sampled_from([None, None, "i1", "i2"]),
        version=st.sampled_from([3, 9]),
    )
    def somebody_new(self, group_id: str, instance_id: str | None, version: int) -> None:
        if len(self.clients) < 8:
            self.new_client(group_id, instance_id, version)

    def new_client(self, group_id: str, instance_id: str | None, version: int) -> None:
        client = Client(f"c{len(self.clients)}", group_id, instance_id, version)
        self.clients.append(client)
        self.send_join(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), changed=st.booleans())
    def join_again(self, data: st.DataObject, changed: bool) -> None:
        self.send_join(data.draw(st.sampled_from(self.clients)), changed=changed)

    @rule(rounds=st.integers(1, 5), seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def some_time_goes_by(self, rounds: int, seconds: float) -> None:
        self.everybody_carries_on(rounds, seconds)

    @rule(rounds=st.integers(1, 5), seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def everybody_carries_on(self, rounds: int, seconds: float) -> None:
        for _ in range(rounds):
            for client in self.clients:
                if client.alive and not client.waiting:
                    self.carry_on(client)
            self.rig.pass_time(seconds)
            self.clients_hear_their_answers()

    def carry_on(self, client: Client) -> None:
        """What a proper client does next."""
        if client.next_step == "join":
            self.send_join(client)
        elif client.next_step == "sync":
            self.send_sync(client, 0)
        else:
            self.send_heartbeat(client)

    def send_join(self, client: Client, *, changed: bool = False) -> None:
        metadata = subscription("orders", "bills") if changed else subscription("orders")
        reply = self.rig.join(
            client.member_id,
            group_id=client.group_id,
            instance_id=client.instance_id,
            protocols=[("range", metadata), ("roundrobin", b"")],
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=client.version,
            client_id=client.name,
        )

        def joined(answer: Any) -> None:
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            client.leads = () if answer.skip_assignment else tuple(m.member_id for m in answer.members)
            client.next_step = "sync"

        self.expect(client, reply, joined)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), salt=st.integers(0, 3))
    def sync(self, data: st.DataObject, salt: int) -> None:
        self.send_sync(data.draw(st.sampled_from(self.clients)), salt)

    def send_sync(self, client: Client, salt: int) -> None:
        shares: dict[str, list[int]] = {member: [] for member in client.leads}
        for partition in PARTITIONS if shares else ():
            shares[client.leads[(partition + salt) % len(client.leads)]].append(partition)
        group_id, member_id, generation = client.group_id, client.member_id, client.generation
        life = self.lives.get(group_id, 0)
        reply = self.rig.sync(
            member_id,
            generation,
            {member: json.dumps(partitions).encode() for member, partitions in shares.items()},
            group_id=group_id,
            instance_id=client.instance_id,
        )

        def assigned(answer: Any) -> None:
            client.next_step = "heartbeat"
            for partition in json.loads(answer.assignment or b"[]"):
                who = client.instance_id or member_id
                owner = self.owners.setdefault((group_id, life, generation, partition), who)
                assert owner == who, f"partition {partition} of generation {generation} went to {owner} and {who}"

        self.expect(client, reply, assigned)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.send_heartbeat(data.draw(st.sampled_from(self.clients)))

    def send_heartbeat(self, client: Client) -> None:
        reply = self.rig.heartbeat(
            client.member_id, client.generation, group_id=client.group_id, instance_id=client.instance_id
        )
        self.expect(client, reply, lambda _: None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        leaver = client.member_id if client.instance_id is None else (client.member_id, client.instance_id)
        self.expect(client, self.rig.leave(leaver, group_id=client.group_id), lambda _: None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.clients)).alive = False

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.start_afresh(client)
        client.alive = True
        client.waiting.clear()

    @staticmethod
    def start_afresh(client: Client) -> None:
        client.member_id, client.generation, client.leads, client.next_step = "", -1, (), "join"

    @rule(data=st.data(), group_id=st.sampled_from(GROUPS), partition=st.sampled_from(PARTITIONS))
    def commit(self, data: st.DataObject, group_id: str, partition: int) -> None:
        self.sent += 1
        offset, key = self.sent, OffsetKey(group_id, "bills", partition)
        members = [client for client in self.clients if client.group_id == group_id]
        client = data.draw(st.sampled_from([None, *members]))
        who: dict[str, Any] = {}
        if client is not None:
            who = {"member_id": client.member_id, "generation": client.generation, "instance_id": client.instance_id}
        reply = self.rig.commit(offsets={("bills", partition): offset}, group_id=group_id, **who)

        now = self.rig.world.now()

        def acknowledged(_: Any) -> None:
            if offset > self.removed.get(key, 0):
                self.acknowledged[key] = max(self.acknowledged.get(key, (0, 0.0)), (offset, now))

        self.expect(client, reply, acknowledged)

    # --- tools ---

    @rule(group_id=st.sampled_from(GROUPS), partition=st.sampled_from([None, *PARTITIONS]))
    def delete(self, group_id: str, partition: int | None) -> None:
        """One offset, or the group."""
        if partition is not None:
            self.remove(OffsetKey(group_id, "bills", partition))
            self.asked.append(self.rig.delete_offsets(("bills", partition), group_id=group_id))
            return
        reply = self.rig.delete_group(group_id)
        if code(reply) in (0, None):
            for number in PARTITIONS:
                self.remove(OffsetKey(group_id, "bills", number))
        self.asked.append(reply)

    def remove(self, key: OffsetKey) -> None:
        self.acknowledged.pop(key, None)
        self.removed[key] = self.sent

    # --- time and the log ---

    @rule(seconds=st.sampled_from([0.5, 3.0, 5.0, 9.0, 16.0, 16.0, 300.0]))
    def pass_time(self, seconds: float) -> None:
        self.rig.pass_time(seconds)

    @rule(trouble=st.sampled_from(["one append fails", "three appends fail", "late", "late", "in time", "in time"]))
    def trouble_with_the_log(self, trouble: str) -> None:
        log = self.rig.log
        if trouble.endswith("fail") or trouble.endswith("fails"):
            log.fails_with = NotLeaderForPartitionError("moved")
            log.failures_left = 1 if trouble.startswith("one") else 3
            return
        log.commits_at_once = trouble == "in time"
        if log.commits_at_once:
            self.rig.commit_log()

    @precondition(lambda self: not self.rig.log.commits_at_once)
    @rule()
    def high_watermark_moves(self) -> None:
        self.rig.commit_log()

    @rule(loses=st.booleans())
    def coordinator_restarts(self, loses: bool) -> None:
        """With what is committed only, or with what was written besides."""
        self.rig.runtime.unload(PARTITION)
        records = self.rig.log.records.setdefault(PARTITION, [])
        if loses:
            del records[self.rig.log.high_watermark(PARTITION) :]
        self.rig.load()
        self.seen.clear()

    # --- what must hold ---

    def expect(self, client: Client | None, reply: Reply[Any], then: Callable[[Any], None]) -> None:
        self.asked.append(reply)
        waiting = client.waiting if client is not None else self.clientless()
        waiting.append((reply, then))

    def clientless(self) -> list[tuple[Reply[Any], Callable[[Any], None]]]:
        if not any(client.name == "nobody" for client in self.clients):
            self.clients.append(Client("nobody", "a", None, 3, alive=False))
        return next(client for client in self.clients if client.name == "nobody").waiting

    @invariant()
    def clients_hear_their_answers(self) -> None:
        for client in self.clients:
            still_waiting = []
            for reply, then in client.waiting:
                if not reply.is_set:
                    still_waiting.append((reply, then))
                    continue
                answered = code(reply)
                if answered == 0:
                    then(reply.value)
                elif answered == 79:
                    client.member_id = reply.value.member_id
                elif answered == 27:
                    client.next_step = "join"
                elif answered in (22, 25, 82):
                    self.start_afresh(client)
            client.waiting[:] = still_waiting

    @invariant()
    def log_replays_into_the_state(self) -> None:
        live, replayed = self.rig.shard, loaded_from(self.rig)
        assert sorted(live.offsets.groups()) == sorted(replayed.offsets.groups())
        for group_id in live.offsets.groups():
            assert dict(live.offsets.newest(group_id)) == dict(replayed.offsets.newest(group_id))
        assert {g for g in live.groups if live.is_stored(g)} == {g for g in replayed.groups if replayed.is_stored(g)}
        assert live.groups.keys() == replayed.groups.keys()
        for group_id, group in live.groups.items():
            other = replayed.groups[group_id]
            assert group.generation >= other.generation
            if group.state is GroupState.STABLE and not any(m.awaits_join for m in group.members.values()):
                assert group.generation == other.generation
                assert {m: v.assignment for m, v in group.members.items()} == {
                    m: v.assignment for m, v in other.members.items()
                }
                assert (group.leader_id, group.static_members) == (other.leader_id, other.static_members)

    @invariant()
    def generations_only_grow(self) -> None:
        shard = self.rig.shard
        for group_id in GROUPS:
            group = shard.groups.get(group_id)
            before, generation = self.seen.get(group_id, (None, 0))
            if group is None:
                if before is not None:
                    self.lives[group_id] = self.lives.get(group_id, 0) + 1
                    self.seen[group_id] = (None, 0)
                continue
            if before is group:
                assert group.generation >= generation
            elif before is not None:
                self.lives[group_id] = self.lives.get(group_id, 0) + 1
            self.seen[group_id] = (group, group.generation)
        stored: dict[str, int] = {}
        for record in self.rig.log.records.get(PARTITION, []):
            change = decode(record.key, record.value)
            if isinstance(change, GroupChange):
                if change.value is None:
                    stored.pop(change.group_id, None)
                else:
                    assert change.value.generation >= stored.get(change.group_id, 0)
                    stored[change.group_id] = change.value.generation

    @invariant()
    def states_are_sound(self) -> None:
        for group in self.rig.shard.groups.values():
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
            for member_id, member in group.members.items():
                assert member.member_id == member_id
                if group.state is GroupState.STABLE:
                    assert member.sync_reply is None
                if group.state is GroupState.COMPLETING_REBALANCE:
                    assert member.join_reply is None

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        for key, (offset, at) in self.acknowledged.items():
            if self.rig.world.now() - at >= RETENTION:
                continue
            found = self.rig.shard.offsets.read(key)
            assert found is not None and found.offset >= offset, (key, offset, found)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.log.fails_with = None
        self.rig.log.commits_at_once = True
        self.rig.commit_log()
        self.rig.pass_time(1_000)
        unanswered = [reply for reply in self.asked if not reply.is_set]
        assert not unanswered
        assert all(group.state is GroupState.EMPTY for group in self.rig.shard.groups.values())


def live_through(examples: int) -> None:
    run_state_machine_as_test(
        GroupLives,
        settings=settings(
            max_examples=examples,
            report_multiple_bugs=False,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_groups_survive_random_lives() -> None:
    """Replay equals the durable state, generations grow, one owner, every request is answered."""
    live_through(500)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_groups_survive_very_many_random_lives() -> None:
    """The same, for as long as it takes."""
    live_through(20_000)
