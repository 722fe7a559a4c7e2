"""Scenarios of groups, repeated with a fault at every append: it fails, commits late, or is lost with its leader.

The group must recover each time: the log replays into the same state, every request gets an answer, acknowledged
offsets remain, and the group ends stable with the assignment that the log holds. Together the scenarios cover every
operation that writes: classic groups, consumer groups, conversions, offsets, tools and deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.coordinator.mixed_members import assignment, metadata
from tests.unit.coordinator.rig import PARTITION, Rig, code
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroupState
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.consumer_group.member import LEAVING_FOR_NOW, Partitions
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    KafkaStorageError,
    RequestTimedOutError,
    UnknownMemberIdError,
)

BEGIN_ANEW = (
    UnknownMemberIdError.code,
    FencedMemberEpochError.code,
    FencedInstanceIdError.code,
    GroupIdNotFoundError.code,
)


class Story:
    """Members join, commit, restart and leave; offsets are deleted. Each append calls ``strike`` first."""

    ASSIGNMENT = b"all"

    def __init__(self, strike: Callable[[Rig, int], None]) -> None:
        self.rig = Rig(
            group_initial_rebalance_delay_ms=0, offsets_retention_minutes=60, offsets_retention_check_interval_ms=60_000
        )
        self.replies: list[Reply[Any]] = []
        self.acknowledged: dict[int, int] = {}
        self.step = 0
        append = self.rig.log.append

        def struck(partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
            self.step += 1
            strike(self.rig, self.step)
            return append(partition, records, timestamp_ms)  # type: ignore[no-any-return]

        self.rig.log.append = struck

    def wait_for(self, reply: Reply[Any]) -> Any:
        """Wait for a response, for up to 1,000 simulated seconds; return None for an error."""
        self.replies.append(reply)
        waited = 0
        while not reply.is_set:
            self.rig.pass_time(5)
            waited += 5
            assert waited < 1_000
        return reply.value if code(reply) == 0 else None

    def commit(self, partition: int, offset: int, **sender: Any) -> None:
        if self.wait_for(self.rig.commit(offsets={("bills", partition): offset}, **sender)) is not None:
            self.acknowledged[partition] = offset

    def member(self, instance_id: str | None = None) -> tuple[str, int] | None:
        """Join and sync as the only active member, with retries."""
        member_id = ""
        for _ in range(10):
            reply = self.rig.join(member_id, instance_id=instance_id, session_ms=6_000, rebalance_ms=6_000)
            joined = self.wait_for(reply)
            if joined is None:
                member_id = "" if code(reply) == 25 else member_id
                continue
            member_id, generation = joined.member_id, joined.generation_id
            if self.wait_for(
                self.rig.sync(member_id, generation, {member_id: self.ASSIGNMENT}, instance_id=instance_id)
            ):
                return member_id, generation
        return None

    def play(self) -> None:
        rig = self.rig
        self.commit(0, 1)
        first = self.member()
        if first is not None:
            self.commit(1, 2, member_id=first[0], generation=first[1])
            self.wait_for(rig.leave(first[0]))
        self.member("i")
        again = self.member("i")
        if again is not None:
            self.commit(1, 3, member_id=again[0], generation=again[1], instance_id="i")
        rig.pass_time(30)
        self.commit(2, 4)
        removed = rig.delete_offsets(("bills", 2))
        self.wait_for(removed)
        if code(removed) in (0, RequestTimedOutError.code):  # after a timeout it may be removed later
            self.acknowledged.pop(2, None)
        last = self.member()
        assert last is not None
        self.check(last)

    def check(self, last: tuple[str, int]) -> None:
        rig = self.rig
        rig.log.commits_at_once = True
        rig.commit_log()
        assert all(reply.is_set for reply in self.replies)
        assert rig.state() is GroupState.STABLE
        for partition, offset in self.acknowledged.items():
            assert rig.offset("bills", partition) >= offset
        live = rig.group()
        offsets = dict(rig.shard.offsets.newest("g"))
        rig.restart()
        assert dict(rig.shard.offsets.newest("g")) == offsets
        assert (rig.group().generation, list(rig.group().members)) == (live.generation, [last[0]])
        assert rig.sync(*last).value.assignment == self.ASSIGNMENT

    def removed(self, reply: Reply[Any], *partitions: int) -> None:
        """Wait for a deletion, and stop expecting its offsets; after a timeout they may or may not be deleted."""
        self.wait_for(reply)
        if code(reply) in (0, RequestTimedOutError.code):
            for partition in partitions:
                self.acknowledged.pop(partition, None)


@dataclass(eq=False)
class Consumer:
    """A member of the consumer protocol that starts over when it is fenced."""

    member_id: str
    instance_id: str | None = None
    pattern: str = ""
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)

    def beat(self) -> Beat:
        return Beat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=20_000,
            topic_names=frozenset({"orders"} if not self.pattern else ()),
            pattern=self.pattern,
            server_assignor=None,
            owned=self.owned,
            client_id="c",
            client_host="/h",
        )


class ConsumerStory(Story):
    """A consumer group: static members are replaced, patterns match new topics, members leave, expire, or do not
    revoke; tools delete offsets and the group; offsets expire."""

    def settle(self, *members: Consumer) -> None:
        """Let the members heartbeat until the group is stable."""
        for _ in range(30):
            for member in members:
                self.heartbeat(member)
            group = self.rig.shard.consumer_groups.get("g")
            is_stable = group is not None and group.state is ConsumerGroupState.STABLE
            if group is not None and is_stable and all(member.epoch == group.epoch for member in members):
                return
            self.rig.pass_time(2)
        raise AssertionError(f"{group} does not become stable")

    def heartbeat(self, member: Consumer) -> None:
        reply = self.rig.beat(member.beat())
        response = self.wait_for(reply)
        if response is None:
            if code(reply) in BEGIN_ANEW:
                member.epoch, member.owned = 0, {}
            return
        member.epoch = response.member_epoch
        if response.assignment is not None:
            assigned = response.assignment.topic_partitions
            member.owned = {topic.topic_id: frozenset(topic.partitions) for topic in assigned}

    def play(self) -> None:
        rig = self.rig
        first, static = Consumer("a"), Consumer("b", "i")
        self.settle(first)
        self.commit(0, 1, member_id="a", generation=first.epoch, version=9)
        self.settle(first, static)
        self.wait_for(rig.last_beat("b", LEAVING_FOR_NOW, instance_id="i"))
        static = Consumer("c", "i")
        self.settle(first, static)
        curious = Consumer("d", pattern="o.*")
        self.settle(first, static, curious)
        rig.topics.set("odds", 2)
        self.settle(first, static, curious)
        self.wait_for(rig.last_beat("d"))
        for _ in range(6):  # the static member is silent
            rig.pass_time(9)
            self.heartbeat(first)
        self.settle(first)
        holder = Consumer("e")
        self.heartbeat(holder)
        for _ in range(4):  # the first member must revoke partitions and does not
            owned_before = first.owned
            self.heartbeat(first)
            first.owned = owned_before
            rig.pass_time(7)
        self.settle(holder)
        self.wait_for(rig.last_beat("e"))
        rig.pass_time(60)
        self.commit(1, 2)
        self.commit(2, 3)
        self.removed(rig.delete_offsets(("bills", 1)), 1)
        self.removed(rig.delete_group(), 0, 1, 2)
        self.commit(3, 4)
        rig.pass_time(3_800)  # until everything has expired
        self.acknowledged.clear()
        last = Consumer("z")
        self.settle(last)
        self.check_consumer(last)

    def check_consumer(self, last: Consumer) -> None:
        rig = self.rig
        rig.log.commits_at_once = True
        rig.commit_log()
        assert all(reply.is_set for reply in self.replies)
        for partition, offset in self.acknowledged.items():
            assert rig.offset("bills", partition) >= offset
        assert last.owned == {rig.topics.ids["orders"]: frozenset(range(4))}
        before, offsets = durable(rig), dict(rig.shard.offsets.newest("g"))
        rig.restart()
        assert (durable(rig), dict(rig.shard.offsets.newest("g"))) == (before, offsets)
        self.heartbeat(last)
        assert last.owned == {rig.topics.ids["orders"]: frozenset(range(4))}


class MigrationStory(ConsumerStory):
    """A group that is converted to a consumer group and back, with members of both protocols."""

    ASSIGNMENT = assignment(0, 1, 2, 3)

    def play(self) -> None:
        rig = self.rig
        self.member()
        new = Consumer("n", "i")
        self.settle(new)
        for _ in range(2):
            rig.pass_time(7)  # the classic member is silent
            self.heartbeat(new)
        self.settle(new)
        self.commit(0, 1, member_id="n", generation=new.epoch, version=9)
        joined = self.wait_for(rig.join(version=3, protocols=[("range", metadata())], session_ms=40_000))
        if joined is not None:
            self.wait_for(rig.sync(joined.member_id, joined.generation_id))
            self.wait_for(rig.heartbeat(joined.member_id, joined.generation_id))
            self.heartbeat(new)
        self.wait_for(rig.last_beat("n", instance_id="i"))
        if joined is not None:
            self.wait_for(rig.leave(joined.member_id))
        rig.pass_time(120)  # a member whose leave failed expires
        last = self.member()
        assert last is not None
        self.check(last)


def durable(rig: Rig) -> dict[str, Any]:
    """Return the group's durable state."""
    (group,) = rig.shard.consumer_groups.values()
    return {name: value for name, value in vars(group).items() if name not in ("topics_version", "patterns_checked")}


STORIES: tuple[type[Story], ...] = (Story, ConsumerStory, MigrationStory)


def steps(kind: type[Story]) -> int:
    story = kind(lambda rig, step: None)
    story.play()
    return story.step


PLACES = [
    pytest.param(kind, struck, id=f"{kind.__name__}-{struck}")
    for kind in STORIES
    for struck in range(1, steps(kind) + 1)
]


def test_stories_append_often_enough() -> None:
    assert [steps(kind) >= least for kind, least in zip(STORIES, (10, 20, 10), strict=True)] == [True] * 3


@pytest.mark.parametrize(("kind", "struck"), PLACES)
def test_group_recovers_from_a_failed_append_at_any_step(kind: type[Story], struck: int) -> None:

    def strike(rig: Rig, step: int) -> None:
        if step == struck:
            raise KafkaStorageError("the disk is gone")

    kind(strike).play()


@pytest.mark.parametrize(("kind", "struck"), PLACES)
def test_group_recovers_from_a_late_commit_at_any_step(kind: type[Story], struck: int) -> None:
    """The high watermark does not advance until the waiting requests time out."""

    def strike(rig: Rig, step: int) -> None:
        rig.log.commits_at_once = step != struck

    story = kind(strike)
    wait_for = story.wait_for

    def wait_and_catch_up(reply: Reply[Any]) -> Any:
        value = wait_for(reply)
        story.rig.log.commits_at_once = True
        story.rig.commit_log()
        return value

    story.wait_for = wait_and_catch_up  # type: ignore[method-assign]
    story.play()


@pytest.mark.parametrize(("kind", "struck"), PLACES)
def test_records_lost_with_their_leader_at_any_step_were_never_acknowledged(kind: type[Story], struck: int) -> None:
    """Waiting requests fail, and the next leader does not have the records."""
    story: Story

    def strike(rig: Rig, step: int) -> None:
        rig.log.commits_at_once = step != struck
        if step == struck + 1:
            raise KafkaStorageError("not the leader any more")

    story = kind(strike)
    wait_for = story.wait_for

    def wait_or_move(reply: Reply[Any]) -> Any:
        log = story.rig.log
        if not log.commits_at_once and not reply.is_set:
            story.rig.runtime.unload(PARTITION)
            del log.records[PARTITION][log.high_watermark(PARTITION) :]
            log.commits_at_once = True
            story.rig.load()
        return wait_for(reply)

    story.wait_for = wait_or_move  # type: ignore[method-assign]
    story.play()
