"""One story of a group, told again and again: each time another append fails, is late, or is lost with its leader.

Wherever it strikes, the group gets over it: the log replays into the state, nobody hangs, what was acknowledged is
there, and in the end a stable group has an assignment that the log has too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.coordinator.rig import PARTITION, Rig, code
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.turn import CoordinatorRecord, Reply
from triokafka.errors import KafkaStorageError, RequestTimedOutError

RESTING = (GroupState.EMPTY, GroupState.STABLE)


class Story:
    """Members come, commit, restart, leave; offsets and groups are deleted. Appends go through ``strike``."""

    def __init__(self, strike: Callable[[Rig, int], None]) -> None:
        self.rig = Rig(group_initial_rebalance_delay_ms=0)
        self.replies: list[Reply[Any]] = []
        self.acknowledged: dict[int, int] = {}
        self.step = 0
        append = self.rig.log.append

        def struck(partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
            self.step += 1
            strike(self.rig, self.step)
            return append(partition, records, timestamp_ms)

        self.rig.log.append = struck  # type: ignore[method-assign]

    def keep(self, reply: Reply[Any]) -> Any:
        """Wait for an answer as long as it takes; None for an error."""
        self.replies.append(reply)
        waited = 0
        while not reply.is_set:
            self.rig.pass_time(5)
            waited += 5
            assert waited < 1_000
        return reply.value if code(reply) == 0 else None

    def commit(self, partition: int, offset: int, **who: Any) -> None:
        if self.keep(self.rig.commit(offsets={("bills", partition): offset}, **who)) is not None:
            self.acknowledged[partition] = offset

    def member(self, instance_id: str | None = None) -> tuple[str, int] | None:
        """Join and sync as the only active member, trying again as a client would."""
        member_id = ""
        for _ in range(10):
            reply = self.rig.join(member_id, instance_id=instance_id, session_ms=6_000, rebalance_ms=6_000)
            joined = self.keep(reply)
            if joined is None:
                member_id = "" if code(reply) == 25 else member_id
                continue
            member_id, generation = joined.member_id, joined.generation_id
            if self.keep(self.rig.sync(member_id, generation, {member_id: b"all"}, instance_id=instance_id)):
                return member_id, generation
        return None

    def tell(self) -> None:
        rig = self.rig
        self.commit(0, 1)
        first = self.member()
        if first is not None:
            self.commit(1, 2, member_id=first[0], generation=first[1])
            self.keep(rig.leave(first[0]))
        self.member("i")
        again = self.member("i")
        if again is not None:
            self.commit(1, 3, member_id=again[0], generation=again[1], instance_id="i")
        rig.pass_time(30)
        self.commit(2, 4)
        removed = rig.delete_offsets(("bills", 2))
        self.keep(removed)
        if code(removed) in (0, RequestTimedOutError.code):  # after a timeout it may still be removed
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
        assert rig.sync(*last).value.assignment == b"all"


def steps() -> int:
    story = Story(lambda rig, step: None)
    story.tell()
    return story.step


STEPS = steps()


def test_story_is_long_enough_to_be_worth_telling() -> None:
    assert STEPS >= 10


@pytest.mark.parametrize("struck", range(1, STEPS + 1))
def test_append_that_fails_at_any_step_is_survived(struck: int) -> None:
    """`cluster/GER-01`, `cluster/GSY-04`."""

    def strike(rig: Rig, step: int) -> None:
        if step == struck:
            raise KafkaStorageError("the disk is gone")

    Story(strike).tell()


@pytest.mark.parametrize("struck", range(1, STEPS + 1))
def test_commit_that_is_late_at_any_step_is_survived(struck: int) -> None:
    """The high watermark stands still until whoever waits was told that it took too long."""

    def strike(rig: Rig, step: int) -> None:
        rig.log.commits_at_once = step != struck

    story = Story(strike)
    keep = story.keep

    def keep_then_catch_up(reply: Reply[Any]) -> Any:
        value = keep(reply)
        story.rig.log.commits_at_once = True
        story.rig.commit_log()
        return value

    story.keep = keep_then_catch_up  # type: ignore[method-assign]
    story.tell()


@pytest.mark.parametrize("struck", range(1, STEPS + 1))
def test_records_that_are_lost_with_their_leader_at_any_step_were_never_acknowledged(struck: int) -> None:
    """`cluster/GMD-24`, `cluster/GMD-25`: who waited is told, and the next leader knows nothing of it."""
    story: Story

    def strike(rig: Rig, step: int) -> None:
        rig.log.commits_at_once = step != struck
        if step == struck + 1:
            raise KafkaStorageError("not the leader any more")

    story = Story(strike)
    keep = story.keep

    def keep_or_move(reply: Reply[Any]) -> Any:
        log = story.rig.log
        if not log.commits_at_once and not reply.is_set:
            story.rig.runtime.unload(PARTITION)
            del log.records[PARTITION][log.high_watermark(PARTITION) :]
            log.commits_at_once = True
            story.rig.load()
        return keep(reply)

    story.keep = keep_or_move  # type: ignore[method-assign]
    story.tell()
