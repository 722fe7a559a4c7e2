"""Random schedules of groups under the consumer protocol (KIP-848): members join, leave, restart, are slow or fall
silent, responses are lost, topics are created, grow and are deleted; leadership changes; the log fails, lags and loses
its end.

In every schedule no two members use a partition at once, no member commits for another, the log replays into the state,
epochs only grow, responses contain only committed state, a member that sends requests in time stays and a silent one is
removed, and every request has one response; and once there are no more faults, each partition of the subscribed topics
has one owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

import pytest

from tests.property.coordinator_life import CoordinatorLife, CountedReply, code, watched
from tests.property.lives import Draw, survive
from tests.unit.coordinator.rig import PARTITION
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup, ConsumerGroupState
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    LEAVING_FOR_NOW,
    MemberState,
    Partitions,
    partitions_of,
)
from triokafka.coordinator.consumer_group.records import EpochChange, ProgressChange
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import Change, OffsetKey

GROUP = "g"
TOPICS = ("orders", "bills", "odds")
PATTERNS = ("", "", "o.*", "bills|odds")
SESSION = 10.0
REVOCATION = 6.0
REBALANCE = 12.0
AGAIN = 1.0
"""Seconds until a removal that could not be written is tried again."""
TOLERANCE = 1e-3
_PAST = 20
"""How many owned partitions of the past are remembered, to commit them too late."""
UNKNOWN, FENCED_EPOCH, FENCED_INSTANCE, UNRELEASED, NOT_FOUND, NOT_EMPTY = 25, 110, 82, 111, 69, 68
FULL, NO_PATTERN = 81, 128


@dataclass(eq=False)
class Client:
    """A consumer process, which uses its partitions until it learns, or must assume, that it no longer owns them."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    pattern: str
    assignor: str | None
    epoch: int = JOINING
    granted: set[tuple[UUID, int]] = field(default_factory=set)
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    slow: bool = False
    terse: bool = False
    """Whether it leaves out unchanged fields, unless a response was lost, as correct clients do."""
    confirmed_at: float = 0.0
    give_up_at: float | None = None
    unanswered_since: float | None = None
    """When it sent the first of all requests that have no response yet."""
    waiting: CountedReply | None = None

    def rejoin_afresh(self) -> None:
        """Drop all state, and join with the next heartbeat."""
        self.epoch = JOINING
        self.granted.clear()
        self.owned.clear()
        self.give_up_at = self.unanswered_since = None

    def beat(self) -> Beat:
        says_all = self.epoch == JOINING or self.unanswered_since is not None or not self.terse
        return Beat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=round(REVOCATION * 1000) if says_all else -1,
            topic_names=self.topics if says_all else None,
            pattern=self.pattern if says_all else None,
            server_assignor=self.assignor if says_all else None,
            owned=partitions_of((topic_id, (number,)) for topic_id, number in self.owned),
            client_id="client",
            client_host="/127.0.0.1",
        )

    def receive(self, response: Any, asked_at: float) -> None:
        """Handle a response.

        The client's time limits must not start later than the coordinator's, which start with the request; and a lost
        response may have contained the revocation already.
        """
        first_asked, self.unanswered_since = self.unanswered_since or asked_at, None
        self.confirmed_at = asked_at
        assert response.member_epoch >= self.epoch, "the epoch of a member only grows"
        self.epoch = response.member_epoch
        if response.assignment is not None:
            assigned = response.assignment.topic_partitions
            self.granted = {(topic.topic_id, number) for topic in assigned for number in topic.partitions}
            self.owned |= self.granted
        if self.owned <= self.granted:
            self.give_up_at = None
        elif self.give_up_at is None:
            self.give_up_at = first_asked + REVOCATION

    def must_give_up(self, now: float) -> bool:
        """Whether the coordinator may have removed the member by now."""
        silent = self.epoch != JOINING and now >= self.confirmed_at + SESSION
        unheard = self.unanswered_since is not None and now >= self.unanswered_since + REVOCATION
        return silent or unheard or (self.give_up_at is not None and now >= self.give_up_at)


class ConsumerGroupLife(CoordinatorLife):
    """One group, the clients that try to join it, and the log under it."""

    LONGEST_WAIT = 6.0
    LONGEST_REVOCATION = (REVOCATION, SESSION + 2 * REBALANCE)
    """Seconds for members under the consumer protocol, and for classic members, which have to join and to sync."""
    STEPS: ClassVar = {
        "everybody_beats": 14,
        "start": 6,
        "beat": 8,
        "leave": 3,
        "restart_statically": 3,
        "crash": 3,
        "forget_everything_but_the_id": 2,
        "hang_up": 2,
        "want_others": 3,
        "be_slow_or_quick": 3,
        "lie": 2,
        "commit_offset": 4,
        "commit_late": 3,
        "delete_offset": 1,
        "delete_group": 2,
        "look_around": 2,
        "grow_a_topic": 3,
        "delete_a_topic": 2,
        "pass_time": 10,
        "appends_fail": 4,
        "commits_lag_or_not": 4,
        "high_watermark_moves": 5,
        "coordinator_restarts": 3,
        "leadership_moves_away": 1,
        "leadership_comes": 1,
        "some_of_the_log_is_read": 4,
        "late_news_of_leadership": 1,
        "log_cannot_be_read": 1,
    }

    def __init__(self, draw: Draw) -> None:
        self.clients: list[Client] = []
        self.number = 0
        self.past: list[tuple[str, int, tuple[UUID, int]]] = []
        self.commits: list[tuple[CountedReply, OffsetKey, int]] = []
        self.acknowledged: dict[OffsetKey, int] = {}
        self.removed: dict[OffsetKey, int] = {}
        self.contacted_at: dict[str, float] = {}
        self.maybe_contacted_at: dict[str, float] = {}
        self.moved_at: dict[str, float] = {}
        self.failures_left: int | None = None
        self.failed_at = 0.0
        self.begin(
            group_consumer_session_timeout_ms=round(SESSION * 1000),
            group_consumer_heartbeat_interval_ms=1_000,
            group_consumer_max_size=draw.of((100, 3)),
        )
        self.rig.topics.partitions.update(orders=5, bills=3)

    def _fold_afresh(self) -> None:
        self.epoch = 0
        self.steps: dict[str, list[tuple[int, int, Partitions]]] = {}
        super()._fold_afresh()

    # --- members ---

    def start(self, draw: Draw) -> None:
        if len(self.clients) < 5:
            name, topics = self._new_id(), frozenset(draw.some(TOPICS))
            instance_id = draw.of((None, f"i-{name}"))
            client = Client(name, instance_id, topics, draw.of(PATTERNS), draw.of((None, "uniform", "range")))
            client.terse = draw.one_in(2)
            self.clients.append(client)
            self._beat(client)

    def beat(self, draw: Draw) -> None:
        """One client sends a heartbeat, whose response may be lost."""
        if self.clients:
            self._beat(draw.of(self.clients), lost=draw.one_in(4))

    def everybody_beats(self, draw: Draw) -> None:
        for _ in range(draw.of((1, 1, 3))):
            for client in self.clients:
                self._beat(client)
            self.let_pass(draw.of((0.0, 1.0)))

    def leave(self, draw: Draw) -> None:
        if not self.clients:
            return
        client = draw.of(self.clients)
        if client.waiting is None:
            client.owned.clear()
            self.rig.last_beat(client.member_id, instance_id=client.instance_id)
            self.clients.remove(client)

    def restart_statically(self, draw: Draw) -> None:
        """A new process starts; the old one has sent a temporary leave request, or not."""
        static = [client for client in self.clients if client.instance_id]
        if not static:
            return
        client = draw.of(static)
        client.rejoin_afresh()
        client.waiting = None
        if draw.one_in(2):
            self.rig.last_beat(client.member_id, LEAVING_FOR_NOW, instance_id=client.instance_id)
        client.member_id = self._new_id()

    def crash(self, draw: Draw) -> None:
        if self.clients:
            client = draw.of(self.clients)
            client.owned.clear()
            self.clients.remove(client)

    def forget_everything_but_the_id(self, draw: Draw) -> None:
        if self.clients:
            client = draw.of(self.clients)
            client.rejoin_afresh()
            client.waiting = None

    def hang_up(self, draw: Draw) -> None:
        if self.clients:
            draw.of(self.clients).waiting = None

    def want_others(self, draw: Draw) -> None:
        if self.clients:
            client = draw.of(self.clients)
            client.topics, client.pattern, client.terse = frozenset(draw.some(TOPICS)), draw.of(PATTERNS), False

    def be_slow_or_quick(self, draw: Draw) -> None:
        if self.clients:
            client = draw.of(self.clients)
            client.slow = not client.slow

    def lie(self, draw: Draw) -> None:
        """Send a wrong member id, epoch, instance id or pattern: it is refused, and nothing is written."""
        group = self.rig.shard.consumer_groups.get(GROUP) if self.is_here else None
        if group is None or not self.clients:
            return
        client, written = draw.of(self.clients), len(self.rig.log.records[PARTITION])
        beat, which = client.beat(), draw.below(6)
        reply: Any
        if which == 0:
            reply = self.rig.beat(beat._replace(member_id="nobody", member_epoch=3, instance_id=None))
        elif which == 1:
            reply = self.rig.beat(beat._replace(member_epoch=group.epoch + 5))
        elif which == 2:
            reply = self.rig.beat(beat._replace(member_id="nobody", member_epoch=3, instance_id="i-nobody"))
        elif which == 3:
            reply = self.rig.beat(beat._replace(member_id="new", member_epoch=JOINING, instance_id=None, pattern="("))
        elif which == 4:
            reply = self.rig.leave("nobody", ("", "i-nobody"), group_id=GROUP)
        else:
            reply = self.rig.commit("nobody", group.epoch, group_id=GROUP, version=9)
        if not reply.is_set:
            self.rig.commit_log()  # a refusal waits until the state that it depends on is committed
        assert reply.is_set and code(reply) in (UNKNOWN, FENCED_EPOCH, FENCED_INSTANCE, NO_PATTERN, FULL)
        assert len(self.rig.log.records[PARTITION]) == written

    # --- offsets and tools ---

    def commit_offset(self, draw: Draw) -> None:
        """Commit an offset of a partition that the client believes to own: no other member owns it, or the commit is
        refused.
        """
        owners = [client for client in self.clients if client.owned and client.epoch > JOINING]
        if not owners:
            return
        client = draw.of(owners)
        topic_id, number = draw.of(sorted(client.owned))
        topic = self.rig.topics.topic_name(topic_id)
        if topic is None or not self.is_here:
            return
        self.number += 1
        group = self.rig.shard.consumer_groups.get(GROUP)
        holder = group.holder_of(topic_id, number) if group is not None else None
        key = OffsetKey(GROUP, topic, number)
        reply: Any = self.rig.commit(
            client.member_id, client.epoch, {(topic, number): self.number}, group_id=GROUP, version=9
        )
        refused = reply.is_set and code(reply) != 0
        assert refused or holder in (None, client.member_id), f"{client.member_id} commits what {holder} owns"
        self.commits.append((reply, key, self.number))

    def commit_late(self, draw: Draw) -> None:
        """Commit under an earlier member id and epoch: a partition of another member is never changed."""
        if not self.past or not self.is_here:
            return
        member_id, epoch, (topic_id, number) = draw.of(self.past)
        topic, group = self.rig.topics.topic_name(topic_id), self.rig.shard.consumer_groups.get(GROUP)
        if topic is None or group is None:
            return
        holder = group.holder_of(topic_id, number)
        reply = self.rig.commit(member_id, epoch, {(topic, number): 0}, group_id=GROUP, version=9)
        refused = reply.is_set and code(reply) != 0
        assert refused or holder in (None, member_id), f"{member_id} commits what {holder} owns"
        if not refused:
            self._remove(OffsetKey(GROUP, topic, number))

    def delete_offset(self, draw: Draw) -> None:
        key = OffsetKey(GROUP, draw.of(TOPICS), draw.below(5))
        self._remove(key)
        self.rig.delete_offsets((key.topic, key.partition), group_id=GROUP)

    def delete_group(self, draw: Draw) -> None:
        group = self.rig.shard.consumer_groups.get(GROUP) if self.is_here else None
        reply = self.rig.delete_group(GROUP)
        if group is not None and group.profiles:
            assert reply.is_set and code(reply) == NOT_EMPTY
        elif not reply.is_set or code(reply) == 0:
            for key in list(self.acknowledged):
                self._remove(key)
            for _, key, _ in self.commits:
                self._remove(key)

    def _remove(self, key: OffsetKey) -> None:
        self.acknowledged.pop(key, None)
        self.removed[key] = self.number

    def look_around(self, draw: Draw) -> None:
        """Describe the group as tools do: members and assignments, with no partition twice."""
        if not self.is_here:
            return
        reply = self.rig.describe_consumer_group(GROUP)
        if not reply.is_set or code(reply) != 0:
            return
        described = reply.value
        assigned = [
            (topic.topic_id, number)
            for member in described.members
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        ]
        assert len(assigned) == len(set(assigned))
        assert [g.group_id for g in self.rig.list_groups()] in ([GROUP], [])

    # --- topics, time ---

    def grow_a_topic(self, draw: Draw) -> None:
        name = draw.of(TOPICS)
        self.rig.topics.set(name, self.rig.topics.partition_count(name) + draw.of((1, 2, 3)))

    def delete_a_topic(self, draw: Draw) -> None:
        name = draw.of(TOPICS)
        if self.rig.topics.topic_id(name) is not None:
            self.rig.topics.delete(name)
            for key in [*self.acknowledged, *(key for _, key, _ in self.commits)]:
                if key.topic == name:
                    self._remove(key)

    def pass_time(self, draw: Draw) -> None:
        self.let_pass(draw.of((0.5, 2.0, 4.0, 7.0, 11.0)))

    def let_pass(self, seconds: float) -> None:
        """Clients give up partitions that they must no longer use; members that sent requests in time still exist."""
        ends = self.now + seconds
        for client in self.clients:
            if client.must_give_up(ends):
                client.rejoin_afresh()
                client.waiting = None
        group = self.rig.shard.consumer_groups.get(GROUP) if self.is_here else None
        safe = [
            member_id
            for member_id in (() if group is None else group.profiles)
            if self.contacted_at.get(member_id, 0.0) + SESSION > ends + TOLERANCE
            and group is not None
            and group.progress_of(member_id).state is not MemberState.UNREVOKED_PARTITIONS
        ]
        super().let_pass(seconds)
        for member_id in safe:
            assert group is not None and member_id in group.profiles, (
                f"{member_id} sent requests in time, but was removed"
            )

    # --- the invariants ---

    def fold(self, change: Change, offset: int) -> None:
        if isinstance(change, EpochChange):
            epoch = 0 if change.value is None else change.value[0]
            assert change.value is None or epoch >= self.epoch, "the epoch of a group only grows"
            self.epoch = epoch
            if change.value is None:
                self.past.clear()
        elif isinstance(change, ProgressChange):
            self.moved_at[change.member_id] = self.now
            if change.value is not None:
                step = (offset, change.value.epoch, change.value.assigned_partitions)
                self.steps.setdefault(change.member_id, []).append(step)
        super().fold(change, offset)

    def check(self) -> None:
        self.follow_log()
        self._listen()
        super().check()
        self.users()
        if self.is_here:
            for key, offset in self.acknowledged.items():
                found = self.rig.shard.offsets.read(key)
                assert found is not None and found.offset >= offset, (key, offset, found)

    def users(self) -> dict[tuple[UUID, int], str]:
        """Return the user of each partition; no partition has two."""
        users: dict[tuple[UUID, int], str] = {}
        for client in self.clients:
            for held in client.owned:
                assert held not in users, f"{held} is used by {users[held]} and {client.member_id}"
                users[held] = client.member_id
        return users

    def check_shard(self, shard: GroupShard) -> None:
        super().check_shard(shard)
        group = shard.consumer_groups.get(GROUP)
        if group is None:
            return
        assert group.target_epoch <= group.epoch
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, progress in group.progress.items():
            assert member_id in group.profiles
            assert progress.epoch <= group.target_epoch
            for held in progress.held():
                assert owners.setdefault(held, member_id) == member_id, f"{held} is owned by two members"
                assert group.holder_of(*held) == member_id
        assert group.targets.keys() <= group.profiles.keys()
        assert group.patterns.keys() == {p.pattern for p in group.profiles.values() if p.pattern}
        assert {i: m for m, p in group.profiles.items() if (i := p.instance_id)} == group.static_members
        assigned = [
            (topic_id, number)
            for target in group.targets.values()
            for topic_id in target
            for number in target[topic_id]
        ]
        assert len(assigned) == len(set(assigned)), "a partition is assigned twice"
        if self.rig.log.failures_left != self.failures_left:
            self.failures_left, self.failed_at = self.rig.log.failures_left, self.now
        if self.now > self.failed_at + AGAIN:
            self.check_sessions(group)

    def check_sessions(self, group: ConsumerGroup) -> None:
        """No silent member stays, and none that does not revoke its partitions."""
        for member_id in group.profiles:
            silent = self.now - self.maybe_contacted_at.setdefault(member_id, self.now)
            assert silent <= SESSION + AGAIN + TOLERANCE, f"{member_id} is silent for {silent:g} seconds"
            if group.progress_of(member_id).state is MemberState.UNREVOKED_PARTITIONS:
                late = self.now - self.moved_at[member_id]
                longest = self.LONGEST_REVOCATION[group.profiles[member_id].classic is not None]
                assert late <= longest + AGAIN + TOLERANCE, (
                    f"{member_id} has not revoked its partitions for {late:g} seconds"
                )

    def loaded(self) -> None:
        for member_id in self.maybe_contacted_at:
            self.maybe_contacted_at[member_id] = self.now
        for member_id in self.moved_at:
            self.moved_at[member_id] = self.now

    def finish(self) -> None:
        """Stop all faults, and check that the group settles."""
        self.end_faults()
        for client in self.clients:
            client.slow = False
        self.clients = self.clients[: self.rig.config.group_consumer_max_size]
        for _ in range(60):
            self.let_pass(1.0)
            self.everybody_goes_on()
            self.check()
            if self.is_settled():
                break
        assert self.is_settled(), self.rig.shard.consumer_groups or self.rig.shard.groups
        records = len(self.rig.log.records.get(PARTITION, ()))
        self.everybody_goes_on()
        assert len(self.rig.log.records.get(PARTITION, ())) == records, "a group at rest writes nothing"
        self.everybody_is_gone()
        self.check()
        group = self.rig.shard.consumer_groups.get(GROUP)
        assert group is None or group.state is ConsumerGroupState.EMPTY
        self.check_all_answered()

    def everybody_goes_on(self) -> None:
        """Each client takes its next step."""
        for client in self.clients:
            self._beat(client)

    def everybody_is_gone(self) -> None:
        """All processes die, and their sessions expire."""
        self.clients.clear()
        self.let_pass(SESSION + 1)

    def is_settled(self) -> bool:
        group = self.rig.shard.consumer_groups.get(GROUP)
        if group is None:
            return not self.clients
        if group.profiles.keys() != {client.member_id for client in self.clients}:
            return False
        if self.clients and group.state is not ConsumerGroupState.STABLE:
            return False
        names = {name for client in self.clients for name in group.topics_of(group.profiles[client.member_id])}
        topics = self.rig.topics
        wanted = {
            (topics.ids[name], number)
            for name in names
            if name in topics.ids
            for number in range(topics.partition_count(name))
        }
        owned = [held for client in self.clients for held in client.owned]
        return len(owned) == len(wanted) and set(owned) == wanted

    # --- helpers ---

    def _new_id(self) -> str:
        self.number += 1
        return f"m{self.number}"

    def _beat(self, client: Client, *, lost: bool = False) -> None:
        if client.waiting is not None:
            return  # one request at a time
        if not client.slow:
            client.owned &= client.granted
        self.maybe_contacted_at[client.member_id] = self.now
        reply: Any = self.rig.beat(client.beat())
        if client.unanswered_since is None:
            client.unanswered_since = self.now
        if not lost:
            client.waiting = reply
            self._listen()

    def _listen(self) -> None:
        for client in self.clients:
            reply = client.waiting
            if reply is None or not reply.is_set:
                continue
            client.waiting = None
            answered = code(reply)
            if answered == 0:
                self.check_committed(client, reply.value)
                self.contacted_at[client.member_id] = reply.asked_at
                client.receive(reply.value, reply.asked_at)
                self.past += [(client.member_id, client.epoch, held) for held in sorted(client.owned)[:2]]
                del self.past[:-_PAST]
            elif answered in (UNKNOWN, FENCED_EPOCH, FENCED_INSTANCE, NOT_FOUND):
                client.rejoin_afresh()
            elif answered == UNRELEASED:
                assert client.epoch == JOINING
        for reply, key, offset in self.commits:
            if reply.is_set and code(reply) == 0 and offset > self.removed.get(key, 0):
                self.acknowledged[key] = max(self.acknowledged.get(key, 0), offset)
        self.commits = [item for item in self.commits if not item[0].is_set]

    def check_committed(self, client: Client, response: Any) -> None:
        """Check that the response of a member is in the log, and committed."""
        self.follow_log()
        high_watermark = self.rig.log.high_watermark(PARTITION)
        assignment = response.assignment
        partitions = (
            None if assignment is None else {t.topic_id: frozenset(t.partitions) for t in assignment.topic_partitions}
        )
        for offset, epoch, assigned in reversed(self.steps.get(client.member_id, [])):
            if epoch == response.member_epoch and offset < high_watermark and partitions in (None, assigned):
                return
        raise AssertionError(f"{client.member_id} received {response}, which is not committed")


def test_invariants_hold_in_random_schedules() -> None:
    """The log replays to the durable state, epochs grow, each partition has one owner, every request has a response."""
    with watched():
        survive(ConsumerGroupLife, range(500))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_groups_survive_very_many_random_lives() -> None:
    """The same, for as long as the long run takes."""
    with watched():
        survive(ConsumerGroupLife, range(20_000))
