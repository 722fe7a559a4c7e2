"""Random schedules of groups with members of the classic and of the consumer protocol, which change from one to the
other: the group becomes a consumer group and a classic one again while its members continue (KIP-848).

The invariants of consumer groups hold here, too: no two members use a partition at once, whatever their protocols; the
log replays into the state, and has the group as one type only; the generation or epoch only grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

import pytest

from tests.property.coordinator_life import CountedReply, code, watched
from tests.property.lives import Draw, survive
from tests.property.test_consumer_group import GROUP, REBALANCE, SESSION, ConsumerGroupLife
from tests.property.test_consumer_group import Client as ConsumerClient
from tests.unit.coordinator.rig import Topics
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import Change, GroupChange
from triokafka.protocol.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopic,
)

REJOIN, UNKNOWN, ILLEGAL, FENCED, ID_REQUIRED, FULL, INCONSISTENT = 27, 25, 22, 82, 79, 81, 23

Held = tuple[UUID, int]


@dataclass(eq=False)
class ClassicClient:
    """A correct consumer under the classic protocol, eager or cooperative."""

    name: str
    instance_id: str | None
    topics: tuple[str, ...]
    cooperative: bool
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    roster: tuple[tuple[str, bytes], ...] = ()
    next_step: str = "join"
    owned: set[Held] = field(default_factory=set)
    alive: bool = True
    slow: bool = False
    confirmed_at: float = 0.0
    topics_version: int = 0
    waiting: tuple[CountedReply, Callable[[Any], None]] | None = None

    def rejoin_afresh(self, *, forgets_id: bool = True) -> None:
        """Drop all state, and join at the next opportunity."""
        if forgets_id:
            self.member_id = ""
        self.generation, self.leads, self.roster, self.next_step, self.waiting = -1, False, (), "join", None
        self.owned.clear()

    def metadata(self, topics: Topics) -> bytes:
        """Return its subscription for the join."""
        by_name: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            name = topics.topic_name(topic_id)
            if name is not None:
                by_name.setdefault(name, []).append(number)
        owned = [OwnedTopic(topic=name, partitions=numbers) for name, numbers in by_name.items()]
        return ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned).encode_versioned(1)

    def assignment_of_all(self, topics: Topics) -> dict[str, bytes]:
        """Return the leader's assignment: each partition goes to a subscriber, and not before its owner has
        revoked it.
        """
        read = {
            member: ConsumerProtocolSubscription.decode_versioned(subscription) for member, subscription in self.roster
        }
        owners: dict[tuple[str, int], str] = {}
        for member, subscription in read.items():
            for owned in subscription.owned_partitions:
                for number in owned.partitions:
                    owners.setdefault((owned.topic, number), member)
        given: dict[str, dict[str, list[int]]] = {member: {} for member in read}
        for name in sorted({name for subscription in read.values() for name in subscription.topics}):
            takers = [member for member, subscription in read.items() if name in subscription.topics]
            for number in range(topics.partition_count(name)):
                taker = takers[number % len(takers)]
                if owners.get((name, number), taker) == taker:
                    given[taker].setdefault(name, []).append(number)
        return {
            member: ConsumerProtocolAssignment(
                assigned_partitions=[AssignedTopic(topic=n, partitions=p) for n, p in shares.items()]
            ).encode_versioned(1)
            for member, shares in given.items()
        }


class MixedGroupLife(ConsumerGroupLife):
    """Both kinds of clients in one group."""

    LONGEST_WAIT = 60.0
    STEPS: ClassVar = {
        **ConsumerGroupLife.STEPS,
        "start": 4,
        "beat": 4,
        "classic_starts": 8,
        "classic_goes_on": 5,
        "classic_leaves": 3,
        "classic_crashes": 2,
        "classic_restarts": 2,
        "classic_hangs_up": 2,
        "classic_is_slow_or_quick": 2,
        "rolls_over": 4,
        "lie": 1,
        "want_others": 1,
        "grow_a_topic": 2,
        "delete_a_topic": 1,
    }

    def __init__(self, draw: Draw) -> None:
        self.classics: list[ClassicClient] = []
        self.cooperative = draw.one_in(2)
        self.seen_number = 0
        super().__init__(draw)

    def begin(self, **config: int) -> None:
        super().begin(group_initial_rebalance_delay_ms=0, **config)

    # --- steps ---

    def classic_starts(self, draw: Draw) -> None:
        if len(self.classics) >= 4:
            return
        name = self._new_id()
        topics = draw.of((("orders",), ("orders", "bills"), ("bills", "odds")))
        client = ClassicClient(name, draw.of((None, None, f"i-{name}")), topics, self.cooperative)
        self.classics.append(client)
        self._carry_on(client)

    def classic_goes_on(self, draw: Draw) -> None:
        if self.classics:
            self._carry_on(draw.of(self.classics))

    def classic_leaves(self, draw: Draw) -> None:
        """The member leaves, or an administrator removes it."""
        if not self.classics:
            return
        client = draw.of(self.classics)
        self.classics.remove(client)
        client.owned.clear()
        if client.instance_id is not None:
            self.rig.leave((draw.of(("", client.member_id)), client.instance_id), group_id=GROUP)
        else:
            self.rig.leave(client.member_id, group_id=GROUP)

    def classic_crashes(self, draw: Draw) -> None:
        if self.classics:
            client = draw.of(self.classics)
            client.owned.clear()
            self.classics.remove(client)

    def classic_restarts(self, draw: Draw) -> None:
        if self.classics:
            draw.of(self.classics).rejoin_afresh()

    def classic_hangs_up(self, draw: Draw) -> None:
        """The connection breaks, and the client repeats its request."""
        if self.classics:
            draw.of(self.classics).waiting = None

    def classic_is_slow_or_quick(self, draw: Draw) -> None:
        if self.classics:
            client = draw.of(self.classics)
            client.slow = not client.slow

    def rolls_over(self, draw: Draw) -> None:
        """A process is stopped and restarted with the other protocol, with the same instance id if it is static."""
        if self.classics and draw.one_in(2):
            classic = draw.of(self.classics)
            self.classics.remove(classic)
            classic.owned.clear()
            if draw.one_in(2):
                leaver = classic.member_id if classic.instance_id is None else ("", classic.instance_id)
                self.rig.leave(leaver, group_id=GROUP)
            new = ConsumerClient(self._new_id(), classic.instance_id, frozenset(classic.topics), "", None)
            self.clients.append(new)
            self._beat(new)
        elif self.clients:
            old = draw.of(self.clients)
            if old.waiting is not None:
                return
            self.clients.remove(old)
            old.owned.clear()
            if draw.one_in(2):
                self.rig.last_beat(old.member_id, draw.of((-1, -2)), instance_id=old.instance_id)
            topics = tuple(sorted(old.topics)) or ("orders",)
            classic = ClassicClient(self._new_id(), old.instance_id, topics, self.cooperative)
            self.classics.append(classic)
            self._carry_on(classic)

    def everybody_beats(self, draw: Draw) -> None:
        for _ in range(draw.of((1, 1, 3, 5))):
            for client in self.clients:
                self._beat(client)
            for classic in self.classics:
                if not classic.slow:
                    self._carry_on(classic)
            self.let_pass(draw.of((0.0, 1.0)))
            self._listen()

    def delete_group(self, draw: Draw) -> None:
        group = self.rig.shard.groups.get(GROUP) if self.is_here else None
        if group is not None and group.members:
            assert code(self.rig.delete_group(GROUP)) != 0
        else:
            super().delete_group(draw)

    # --- classic clients ---

    def _carry_on(self, client: ClassicClient) -> None:
        if client.waiting is not None or not client.alive:
            return
        if client.next_step == "join":
            self._join(client)
        elif client.next_step == "sync":
            self._sync(client)
        elif client.leads and client.topics_version != self.rig.topics.version:
            self._join(client)  # a leader watches the topics
        else:
            self._heartbeat(client)

    def _join(self, client: ClassicClient) -> None:
        if not client.cooperative:
            client.owned.clear()
        asked_at = self.now
        reply = self.rig.join(
            client.member_id,
            group_id=GROUP,
            instance_id=client.instance_id,
            protocols=[("cooperative-sticky" if client.cooperative else "range", client.metadata(self.rig.topics))],
            session_ms=round(SESSION * 1000),
            rebalance_ms=round(REBALANCE * 1000),
            version=9,
            client_id=client.name,
        )

        def joined(answer: Any) -> None:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.leads = answer.leader == answer.member_id
            assigns = client.leads and not answer.skip_assignment
            client.roster = tuple((m.member_id, bytes(m.metadata)) for m in answer.members) if assigns else ()
            if not answer.skip_assignment:
                client.topics_version = self.rig.topics.version
            client.next_step = "sync"
            client.confirmed_at = max(client.confirmed_at, asked_at)

        self._ask(client, reply, joined)

    def _sync(self, client: ClassicClient) -> None:
        asked_at = self.now
        reply = self.rig.sync(
            client.member_id,
            client.generation,
            client.assignment_of_all(self.rig.topics),
            group_id=GROUP,
            instance_id=client.instance_id,
        )

        def assigned(answer: Any) -> None:
            granted: set[Held] = set()
            if answer.assignment:
                read = ConsumerProtocolAssignment.decode_versioned(answer.assignment)
                for topic in read.assigned_partitions:
                    topic_id = self.rig.topics.topic_id(topic.topic)
                    if topic_id is not None:
                        granted |= {(topic_id, number) for number in topic.partitions}
            gave_up = client.owned - granted
            client.owned = granted
            client.next_step = "join" if gave_up and client.cooperative else "heartbeat"
            client.confirmed_at = asked_at
            if self.now >= asked_at + SESSION:
                client.rejoin_afresh(forgets_id=False)

        self._ask(client, reply, assigned)

    def _heartbeat(self, client: ClassicClient) -> None:
        asked_at = self.now

        def is_well(_: Any) -> None:
            client.confirmed_at = asked_at

        reply = self.rig.heartbeat(client.member_id, client.generation, group_id=GROUP, instance_id=client.instance_id)
        self._ask(client, reply, is_well)

    def _ask(self, client: ClassicClient, reply: Any, then: Callable[[Any], None]) -> None:
        self.maybe_contacted_at[client.member_id] = self.now
        client.waiting = (reply, then)
        self._hear(client)

    def _hear(self, client: ClassicClient) -> None:
        if client.waiting is None or not client.waiting[0].is_set:
            return
        (reply, then), client.waiting = client.waiting, None
        self.maybe_contacted_at[client.member_id] = self.now
        answered = code(reply)
        if answered == 0:
            then(reply.value)
            self.maybe_contacted_at[client.member_id] = self.now
        elif answered == ID_REQUIRED:
            client.member_id = reply.value.member_id
        elif answered == REJOIN:
            client.next_step = "join"
        elif answered in (UNKNOWN, ILLEGAL):
            client.rejoin_afresh(forgets_id=answered == UNKNOWN)
        elif answered in (FENCED, FULL, INCONSISTENT):
            client.rejoin_afresh()
            client.alive = False

    def _listen(self) -> None:
        super()._listen()
        for client in self.classics:
            self._hear(client)

    # --- the invariants ---

    def let_pass(self, seconds: float) -> None:
        """Classic clients without a response for a session stop using their partitions."""
        for client in self.classics:
            if client.owned and self.now + seconds >= client.confirmed_at + SESSION:
                client.rejoin_afresh(forgets_id=False)
        super().let_pass(seconds)

    def users(self) -> dict[Held, str]:
        users = super().users()
        for client in self.classics:
            for held in client.owned:
                assert held not in users, f"{held} is used by {users[held]} and {client.name} ({client.member_id})"
                users[held] = client.name
        return users

    def fold(self, change: Change, offset: int) -> None:
        if isinstance(change, GroupChange):
            self.loaded()  # when the type of the group changes, each present member has a new session
        super().fold(change, offset)
        stored, group = self.stored.get(GROUP), self.consumer_groups.get(GROUP)
        if not (stored.members if stored is not None else group.profiles if group is not None else ()):
            self.seen_members: set[Any] = set()

    def check_shard(self, shard: GroupShard) -> None:
        super().check_shard(shard)
        classic, stored, group = shard.groups.get(GROUP), self.stored.get(GROUP), self.consumer_groups.get(GROUP)
        assert stored is None or group is None, "the log has the group as both types"
        assert classic is None or GROUP not in shard.consumer_groups, "the group exists as both types"
        number = stored.generation if stored is not None else group.epoch if group is not None else 0
        there = set(group.profiles) if group is not None else set(classic.members) if classic is not None else set()
        goes_on = there & self.seen_members  # otherwise it may have been empty in between, and started over
        assert not goes_on or number == 0 or number >= self.seen_number, "the generation or epoch only grows"
        self.seen_number, self.seen_members = number, there
        for key in shard.timers._deadlines:
            if key.entity_id == GROUP and key.kind in ("join", "sync", "session"):
                assert group is None, f"{key} belongs to a classic group, but the group is not classic"

    def _fold_afresh(self) -> None:
        self.seen_number, self.seen_members = 0, set[str]()
        super()._fold_afresh()

    def finish(self) -> None:
        room = self.rig.config.group_consumer_max_size
        self.classics = [client for client in self.classics if client.alive][:room]
        self.clients = self.clients[: room - len(self.classics)]
        for client in self.classics:
            client.slow = False
        super().finish()

    def everybody_goes_on(self) -> None:
        super().everybody_goes_on()
        for client in self.classics:
            self._carry_on(client)

    def everybody_is_gone(self) -> None:
        super().everybody_is_gone()
        self.classics.clear()
        self.let_pass(3 * REBALANCE)

    def is_settled(self) -> bool:
        alive = [client for client in self.classics if client.alive]
        if not alive:
            return super().is_settled()
        if any(c.waiting is not None or c.next_step != "heartbeat" for c in alive):
            return False
        group = self.rig.shard.consumer_groups.get(GROUP)
        topics = self.rig.topics
        names = {name for client in alive for name in client.topics if name in topics.ids}
        ids = {client.member_id for client in (*self.clients, *alive)}  # type: ignore[attr-defined]
        if group is None:
            classic = self.rig.shard.groups.get(GROUP)
            if self.clients or classic is None or classic.state is not GroupState.STABLE:
                return False
            there = set(classic.members)
        else:
            if not self.clients or group.state.value != "Stable":
                return False
            names |= {n for c in self.clients if c.member_id in group.profiles for n in self._wanted_by(group, c)}
            there = set(group.profiles)
        wanted = {(topics.ids[name], number) for name in names for number in range(topics.partition_count(name))}
        return there == ids and self.users().keys() == wanted

    def _wanted_by(self, group: Any, client: ConsumerClient) -> set[str]:
        return {name for name in group.topics_of(group.profiles[client.member_id]) if name in self.rig.topics.ids}


def test_mixed_groups_survive_random_lives() -> None:
    """Each partition has one owner whatever its protocol; the log replays to the durable state; every request has a
    response.
    """
    with watched():
        survive(MixedGroupLife, range(500))


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_mixed_groups_survive_very_many_random_lives() -> None:
    """The same, for as long as the long run takes."""
    with watched():
        survive(MixedGroupLife, range(20_000))
