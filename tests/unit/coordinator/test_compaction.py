"""A compacted log loads into the same state.

A real log on a memory disk, compacted by the real cleaner, under a running coordinator.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.broker_stub.log.cleaner.logs import clean, compacted_log, end_transaction, put
from tests.unit.coordinator.rig import PARTITION, Rig, code
from triokafka.broker_stub.coordinators.replicated_log import ReplicatedCoordinatorLog
from triokafka.broker_stub.log.cleaner.cleanable_range import cleanable_range
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.group.records import CommittedOffset, OffsetChange, OffsetKey, encode
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage

RETENTION_MS = 60_000  # delete.retention.ms of the log: how long tombstones stay
GROUPS = ("a", "b", "c")


class OnDisk:
    """A coordinator on a log of small segments; every append is committed at once."""

    def __init__(self, **config: int) -> None:
        self.storage = MemoryStorage()
        self.log = compacted_log(self.storage)
        self.replicas = SimpleNamespace(
            partition=lambda _: SimpleNamespace(log=self.log),
            find=lambda *_: SimpleNamespace(high_watermark=self.log.log_end_offset),
            append_internal=self._append,
        )
        log = ReplicatedCoordinatorLog("__consumer_offsets", cast("Any", self.replicas), read_bytes=500)
        self.rig = Rig(log, **config)
        self.cleaned_up_to = 0

    def _append(self, _: TopicPartition, batch: Any) -> int:
        info = self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.rig.world.wall_ms(), from_client=False)
        return info.last_offset + 1

    def clean(self) -> int:
        """Compact the log up to the last stable offset. Returns the number of removed records."""
        before = self.records()
        now_ms = self.rig.world.wall_ms()
        self.log.roll(now_ms=now_ms)
        stable = self.log.last_stable_offset(self.log.log_end_offset)
        dirty = cleanable_range(self.log, self.cleaned_up_to, committed=stable, now_ms=now_ms)
        clean(self.log, self.storage, first_dirty=dirty.first_dirty, end=dirty.end_offset, now_ms=now_ms)
        self.cleaned_up_to = dirty.end_offset
        return before - self.records()

    def records(self) -> int:
        """Return the number of records in the log."""
        pieces = self.rig.runtime._log.read_all(PARTITION)
        return sum(len(getattr(piece, "records", piece)) if not hasattr(piece, "commits") else 1 for piece in pieces)  # type: ignore[arg-type, misc]

    def loaded(self) -> dict[str, Any]:
        """Restart the shard and return its durable state."""
        self.rig.restart()
        shard = self.rig.shard
        return {
            "offsets": {key: value for group in sorted(shard.offsets.groups()) for key, value in offsets(shard, group)},
            "pending": sorted(shard.offsets.pending),
            "groups": {name: durable(group) for name, group in sorted(shard.groups.items())},
            "consumer groups": {
                name: {field: str(value) for field, value in vars(group).items() if field != "topics_version"}
                for name, group in sorted(shard.consumer_groups.items())
            },
        }

    def commit_in_transaction(self, group_id: str, partition: int, offset: int, producer_id: int) -> None:
        value = CommittedOffset(offset, -1, "", self.rig.world.wall_ms())
        record = encode(OffsetChange(OffsetKey(group_id, "orders", partition), value))
        put(self.log, record, now_ms=self.rig.world.wall_ms(), producer_id=producer_id, producer_epoch=0,
            base_sequence=self.next_sequence(producer_id), transactional=True)  # fmt: skip

    def next_sequence(self, producer_id: int) -> int:
        """Return the next sequence number of a producer."""
        sequences = self.__dict__.setdefault("sequences", {})
        sequences[producer_id] = sequences.get(producer_id, -1) + 1
        return int(sequences[producer_id])

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        end_transaction(self.log, producer_id, commit=commit, now_ms=self.rig.world.wall_ms())
        self.rig.runtime.unload(PARTITION)  # stands for the transaction coordinator's call: the shard reloads the log
        self.rig.load()


def offsets(shard: Any, group_id: str) -> list[tuple[OffsetKey, CommittedOffset]]:
    return sorted(shard.offsets.newest(group_id))


def durable(group: ClassicGroup) -> dict[str, Any]:
    """Return the state of a group that its record holds."""
    return {
        "protocol": (group.protocol_type, group.protocol),
        "generation": group.generation,
        "leader": group.leader_id,
        "state": group.state,
        "since": group.state_timestamp_ms,
        "members": [
            (m.member_id, m.instance_id, m.client_id, m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment)
            for m in group.members.values()
        ],
        "metadata": [m.protocols for m in group.members.values()],
    }


def heartbeat(member_id: str, epoch: int = 0) -> Beat:
    """Return the first heartbeat of a member of a consumer group."""
    return Beat(
        member_id=member_id, member_epoch=epoch, instance_id=None, rack_id=None, rebalance_timeout_ms=5_000,
        topic_names=frozenset({"orders"}), pattern=None, server_assignor=None, owned={}, client_id="c",
        client_host="/h",
    )  # fmt: skip


def test_compaction_retains_the_last_record_of_each_offset() -> None:
    """A hundred commits of five offsets."""
    disk = OnDisk()
    for offset in range(100):
        disk.rig.commit(offsets={("orders", partition): offset for partition in range(5)})
    state = disk.loaded()
    assert disk.clean() >= 450
    assert disk.loaded() == state
    assert disk.rig.offset("orders", 4) == 99


def test_compaction_retains_the_last_generation_of_a_group() -> None:
    """The members, their assignments and static members survive."""
    disk = OnDisk()
    for _ in range(20):
        disk.rig.leave(*disk.rig.stable_group(3)[0])
    members, generation = disk.rig.stable_group(3, instance_id=None)
    state = disk.loaded()
    assert disk.clean() > 0
    assert disk.loaded() == state
    assert [code(disk.rig.heartbeat(member, generation)) for member in members] == [0, 0, 0]


@pytest.mark.parametrize("tombstones_go", [False, True])
def test_removed_state_stays_removed_after_compaction(tombstones_go: bool) -> None:
    """This holds with the tombstones in the log, and after the cleaner has removed them."""
    disk = OnDisk()
    for group_id in GROUPS:
        disk.rig.commit(group_id=group_id, offsets={("orders", p): 1 for p in range(8)})
        disk.rig.leave(*disk.rig.stable_group(1, group_id=group_id)[0], group_id=group_id)
    disk.rig.delete_offsets(("orders", 3), group_id="a")
    disk.rig.delete_group("b")
    disk.rig.pass_time(1)
    state = disk.loaded()
    disk.clean()
    if tombstones_go:
        disk.rig.pass_time(2 * RETENTION_MS / 1000)
        disk.rig.commit(group_id="c", offsets={("orders", p): 1 for p in range(8)})
        state = disk.loaded()
        disk.clean()
        disk.cleaned_up_to = 0
        disk.rig.pass_time(2 * RETENTION_MS / 1000)
        disk.clean()
        values = [value for piece in disk.rig.runtime._log.read_all(PARTITION) for _, _, value in cast("Any", piece)]
        assert None not in values
    assert disk.loaded() == state
    assert sorted(disk.rig.shard.groups) == ["a", "c"]


@pytest.mark.parametrize("again", [False, True])
def test_tombstone_and_new_record_survive_compaction_in_both_orders(again: bool) -> None:
    disk = OnDisk()
    disk.rig.commit()
    disk.rig.delete_group()
    disk.clean()
    if again:
        disk.rig.commit(offsets={("orders", 0): 6})
    disk.clean()
    disk.rig.restart()
    assert disk.rig.offset() == (6 if again else -1)
    assert list(disk.rig.shard.groups) == (["g"] if again else [])


@pytest.mark.parametrize(("commit", "offset"), [(True, 8), (False, 3)])
def test_ended_transactions_keep_their_outcome_after_compaction(commit: bool, offset: int) -> None:
    """A marker stays as long as a record of its transaction; records of an aborted transaction are removed."""
    disk = OnDisk()
    disk.rig.commit(group_id="a", offsets={("orders", 0): 3})
    for position in range(5, 9):
        disk.commit_in_transaction("a", 0, position, 77)
    disk.end_transaction(77, commit=commit)
    for _ in range(20):
        disk.rig.commit(group_id="b")
    state = disk.loaded()
    disk.clean()
    assert disk.loaded() == state
    disk.rig.pass_time(2 * RETENTION_MS / 1000)
    disk.rig.commit(group_id="b")
    state = disk.loaded()
    disk.cleaned_up_to = 0
    disk.clean()
    assert disk.loaded() == state
    assert disk.rig.offset(group_id="a") == offset


@pytest.mark.parametrize("seed", range(12))
def test_random_history_loads_into_the_same_state_after_compaction(seed: int) -> None:
    """Commits, deletions, generations, members of both protocols and transactions, with compaction every 40 steps."""
    dice = random.Random(seed)
    disk = OnDisk()
    rig = disk.rig
    epochs: dict[str, int] = {}
    for step in range(150):
        group_id = dice.choice(GROUPS)
        kind = dice.randrange(10)
        if kind < 4:
            rig.commit(group_id=group_id, offsets={("orders", dice.randrange(4)): step for _ in range(2)})
        elif kind == 4:
            rig.delete_offsets(("orders", dice.randrange(4)), group_id=group_id)
        elif kind == 5:
            rig.delete_group(group_id)
        elif kind == 6 and group_id in rig.shard.groups:
            if not rig.group(group_id).members:
                rig.stable_group(dice.randint(1, 3), group_id=group_id)
            elif dice.random() < 0.7:
                rig.leave(*list(rig.group(group_id).members), group_id=group_id)
        elif kind == 7:
            disk.commit_in_transaction(group_id, dice.randrange(4), step, producer := dice.choice((70, 71)))
            if dice.random() < 0.7:
                disk.end_transaction(producer, commit=dice.random() < 0.6)
            else:
                rig.restart()
        elif kind == 8:
            member_id = dice.choice(("x", "y"))
            if epochs.pop(member_id, 0):
                rig.last_beat(member_id, group_id="new")
            else:
                reply = rig.beat(heartbeat(member_id), group_id="new")
                epochs[member_id] = reply.value.member_epoch if code(reply) == 0 else 0
        else:
            rig.pass_time(dice.choice((1, 5, 100)))
        if step % 40 == 39:
            state = disk.loaded()
            disk.clean()
            assert disk.loaded() == state
