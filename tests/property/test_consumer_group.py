"""Random lives of groups under the new consumer protocol (KIP-848): members come, go, restart, are slow or fall silent,
answers get lost, topics come, grow and go, and the log fails, lags and is read again.

Whatever happens: no two members use a partition at once, the log replays into the state, epochs only grow; and once
everybody behaves, every partition of every topic that is wanted is owned, by one member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

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

from tests.unit.coordinator.rig import PARTITION, Rig
from triokafka.coordinator.consumer_group.group import ConsumerGroup, ConsumerGroupState
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.consumer_group.member import JOINING, LEAVING_FOR_NOW, partitions_of
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import decode
from triokafka.coordinator.turn import Reply
from triokafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    KafkaError,
    NotLeaderForPartitionError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

TOPICS = ("orders", "bills", "odds")
PATTERNS = ("", "", "o.*", "bills|odds")
SESSION_MS = 10_000
REVOCATION_MS = 6_000
FENCED = (UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError)
SOFT = ("topics_version", "patterns_checked")


@dataclass(eq=False)
class Client:
    """A consumer process, which uses what it was given until it hears, or must assume, that it is not its own."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    pattern: str
    assignor: str | None
    epoch: int = JOINING
    told: set[tuple[UUID, int]] = field(default_factory=set)
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    slow: bool = False
    heard_at: float = 0.0
    must_be_rid_at: float | None = None
    waiting: Reply[ConsumerGroupHeartbeatResponse] | None = None

    def start_anew(self) -> None:
        """Drop everything, and join at the next heartbeat."""
        self.epoch = JOINING
        self.told.clear()
        self.owned.clear()
        self.must_be_rid_at = None

    def beat(self) -> Beat:
        return Beat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=REVOCATION_MS,
            topic_names=self.topics,
            pattern=self.pattern,
            server_assignor=self.assignor,
            owned=partitions_of((topic_id, (number,)) for topic_id, number in self.owned),
            client_id="client",
            client_host="/127.0.0.1",
        )

    def hear(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self.heard_at = now
        self.epoch = response.member_epoch
        if response.assignment is not None:
            told = response.assignment.topic_partitions
            self.told = {(topic.topic_id, number) for topic in told for number in topic.partitions}
            self.owned |= self.told
        if self.owned <= self.told:
            self.must_be_rid_at = None
        elif self.must_be_rid_at is None:
            self.must_be_rid_at = now + REVOCATION_MS / 1000


class ConsumerGroupLives(RuleBasedStateMachine):
    """One group, the clients that try to be in it, and the log under it."""

    clients: list[Client]

    @initialize()
    def begin(self) -> None:
        self.rig = Rig(group_consumer_session_timeout_ms=SESSION_MS, group_consumer_heartbeat_interval_ms=1_000)
        self.rig.topics.partitions.update(orders=5, bills=3)
        self.clients = []
        self.number = 0
        self.epoch = 0

    # ---------------------------------------------------------------- members

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        topics=st.frozensets(st.sampled_from(TOPICS)),
        pattern=st.sampled_from(PATTERNS),
        static=st.booleans(),
        assignor=st.sampled_from((None, "uniform", "range")),
    )
    def start(self, topics: frozenset[str], pattern: str, static: bool, assignor: str | None) -> None:
        name = self._new_id()
        client = Client(name, f"i-{name}" if static else None, topics, pattern, assignor)
        self.clients.append(client)
        self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), lost=st.booleans())
    def beat(self, data: st.DataObject, lost: bool) -> None:
        self._beat(self._any(data), lost=lost and data.draw(st.booleans()))

    @precondition(lambda self: self.clients)
    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients:
            self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self._any(data)
        if client.waiting is None:
            client.owned.clear()
            self.rig.last_beat(client.member_id, instance_id=client.instance_id)
            self.clients.remove(client)

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(data=st.data(), says_so=st.booleans())
    def restart_statically(self, data: st.DataObject, says_so: bool) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients if client.instance_id]))
        client.start_anew()
        client.waiting = None
        if says_so:
            self.rig.last_beat(client.member_id, LEAVING_FOR_NOW, instance_id=client.instance_id)
        client.member_id = self._new_id()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        client = self._any(data)
        client.owned.clear()
        self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def forget_everything_but_the_id(self, data: st.DataObject) -> None:
        client = self._any(data)
        client.start_anew()
        client.waiting = None

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=st.frozensets(st.sampled_from(TOPICS)), pattern=st.sampled_from(PATTERNS))
    def want_others(self, data: st.DataObject, topics: frozenset[str], pattern: str) -> None:
        client = self._any(data)
        client.topics, client.pattern = topics, pattern

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def be_slow_or_quick(self, data: st.DataObject) -> None:
        client = self._any(data)
        client.slow = not client.slow

    # ---------------------------------------------------------------- topics, time, log

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow_a_topic(self, name: str, more: int) -> None:
        self.rig.topics.set(name, self.rig.topics.partition_count(name) + more)

    @rule(name=st.sampled_from(TOPICS))
    def delete_a_topic(self, name: str) -> None:
        if self.rig.topics.topic_id(name) is not None:
            self.rig.topics.delete(name)

    @rule(seconds=st.sampled_from((0.5, 2.0, 4.0)))
    def let_time_pass(self, seconds: float) -> None:
        # A client's own clock is ahead of the coordinator's, which counts from when it answered.
        end = self.rig.world.clock + seconds
        for client in self.clients:
            silent = client.epoch != JOINING and end >= client.heard_at + SESSION_MS / 1000
            if silent or (client.must_be_rid_at is not None and end >= client.must_be_rid_at):
                client.start_anew()
                client.waiting = None
        self.rig.pass_time(seconds)

    @rule(times=st.integers(1, 3))
    def appends_fail(self, times: int) -> None:
        self.rig.log.fails_with, self.rig.log.failures_left = NotLeaderForPartitionError("moved"), times

    @rule()
    def commits_lag_or_not(self) -> None:
        self.rig.log.commits_at_once = not self.rig.log.commits_at_once
        if self.rig.log.commits_at_once:
            self._commit()

    @rule()
    def commit(self) -> None:
        self._commit()

    @rule()
    def read_the_log_again(self) -> None:
        self._commit()
        self.rig.restart()
        self._listen()

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def nobody_uses_what_another_uses(self) -> None:
        if not hasattr(self, "rig"):
            return
        users: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            for held in client.owned:
                assert held not in users, f"{held} is used by {users[held]} and {client.member_id}"
                users[held] = client.member_id

    @invariant()
    def the_log_replays_into_the_state(self) -> None:
        if not hasattr(self, "rig"):
            return
        again = GroupShard(self.rig.config, lambda: "none", self.rig.topics)
        for offset, record in enumerate(self.rig.log.records.get(PARTITION, [])):
            change = decode(record.key, record.value)
            assert change is not None
            again.replay(change, offset, committed=True)
        ours = self.rig.shard.consumer_groups
        assert {name: _durable(group) for name, group in again.consumer_groups.items()} == {
            name: _durable(group) for name, group in ours.items()
        }

    @invariant()
    def epochs_only_grow(self) -> None:
        if not hasattr(self, "rig"):
            return
        group = self.rig.shard.consumer_groups.get("g")
        if group is not None:
            assert group.epoch >= self.epoch
            self.epoch = group.epoch
            assert group.target_epoch <= group.epoch
            for progress in group.progress.values():
                assert progress.epoch <= group.target_epoch

    def teardown(self) -> None:
        """Everybody behaves from now on."""
        if not hasattr(self, "rig"):
            return
        self.rig.log.fails_with = None
        self.rig.log.commits_at_once = True
        self._commit()
        for client in self.clients:
            client.slow = False
        for _ in range(30):
            self.let_time_pass(1.0)
            for client in self.clients:
                self._beat(client)
            self.nobody_uses_what_another_uses()
        group = self.rig.shard.consumer_groups.get("g")
        if group is None or not self.clients:
            return
        assert group.state is ConsumerGroupState.STABLE, group
        names = {name for client in self.clients for name in group.topics_of(group.profiles[client.member_id])}
        topics = self.rig.topics
        wanted = {
            (topics.ids[name], number)
            for name in names
            if name in topics.ids
            for number in range(topics.partition_count(name))
        }
        assert set().union(*(client.owned for client in self.clients)) == wanted
        assert sum(len(client.owned) for client in self.clients) == len(wanted)
        records = len(self.rig.log.records[PARTITION])
        for client in self.clients:
            self._beat(client)
        assert len(self.rig.log.records[PARTITION]) == records, "a group at rest writes nothing"

    # ---------------------------------------------------------------- how

    def _new_id(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def _any(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.clients))

    def _beat(self, client: Client, *, lost: bool = False) -> None:
        if client.waiting is not None:
            return  # one at a time
        if not client.slow:
            client.owned &= client.told
        reply = self.rig.beat(client.beat())
        if not lost:
            client.waiting = reply
            self._listen()

    def _commit(self) -> None:
        self.rig.commit_log()
        self._listen()

    def _listen(self) -> None:
        for client in self.clients:
            reply = client.waiting
            if reply is None or not reply.is_set:
                continue
            client.waiting = None
            try:
                client.hear(reply.value, self.rig.world.clock)
            except FENCED:
                client.start_anew()
            except UnreleasedInstanceIdError:
                assert client.epoch == JOINING
            except (BrokerResponseError, KafkaError):
                pass  # the coordinator is away, or cannot write: ask again


def _durable(group: ConsumerGroup) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if name not in SOFT}


_QUICK = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


def test_groups_survive_random_lives() -> None:
    run_state_machine_as_test(ConsumerGroupLives, settings=_QUICK)  # type: ignore[no-untyped-call]


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_groups_survive_very_many_random_lives() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        ConsumerGroupLives, settings=settings(_QUICK, max_examples=20_000)
    )
