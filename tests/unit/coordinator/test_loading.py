"""Loading and unloading of shards, and the state after a load."""

from __future__ import annotations

import struct

import pytest

from tests.unit.coordinator.rig import PARTITION, Rig, code
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.errors import CoordinatorLoadInProgressError, NotCoordinatorError, UnknownMemberIdError

LOADING = CoordinatorLoadInProgressError.code
NOT_COORDINATOR = NotCoordinatorError.code


def test_stable_group_is_stable_after_a_restart() -> None:
    """The generation, members and assignments are unchanged, and sessions start anew."""
    rig = Rig()
    members, generation = rig.stable_group(3, session_ms=10_000)
    rig.restart()
    group = rig.group()
    assert (group.state, group.generation, list(group.members)) == (GroupState.STABLE, generation, members)
    assert (group.protocol_type, group.protocol, group.leader_id) == ("consumer", "range", members[0])
    rig.pass_time(9.999)
    assert [code(rig.heartbeat(member, generation)) for member in members] == [0, 0, 0]
    assert rig.sync(members[2], generation).value.assignment == members[2].encode()


def test_members_of_a_loaded_group_that_stay_silent_expire() -> None:
    rig = Rig()
    rig.stable_group(2, session_ms=10_000)
    rig.restart()
    rig.pass_time(10)
    assert rig.state() is GroupState.EMPTY


def test_restart_loses_a_rebalance_in_progress() -> None:
    """A generation that was not stored is soft state; its members rejoin."""
    rig = Rig()
    members, generation = rig.stable_group()
    rig.join(members[0]), rig.join(members[1])
    rig.restart()
    assert (rig.state(), rig.group().generation) == (GroupState.STABLE, generation)
    assert code(rig.heartbeat(members[0], generation + 1)) == 22


def test_loading_shard_refuses_requests() -> None:
    rig = Rig()
    members, generation = rig.stable_group()
    rig.runtime.unload(PARTITION)
    assert code(rig.heartbeat(members[0], generation)) == NOT_COORDINATOR
    rig.runtime.load(PARTITION, 10)
    assert rig.runtime.state(PARTITION) is ShardState.LOADING
    assert rig.runtime.is_loading
    assert code(rig.heartbeat(members[0], generation)) == LOADING
    assert code(rig.commit()) == LOADING
    with pytest.raises(CoordinatorLoadInProgressError):
        rig.fetch()
    rig.runtime.load_all()
    assert not rig.runtime.is_loading
    assert code(rig.heartbeat(members[0], generation)) == 0


def test_long_logs_are_loaded_in_steps() -> None:
    rig = Rig()
    for _ in range(30):
        rig.commit(offsets={("orders", p): 1 for p in range(500)})
    rig.runtime.unload(PARTITION)
    rig.runtime.load(PARTITION, 10)
    steps = 0
    while rig.runtime.is_loading:
        rig.runtime.load_step()
        steps += 1
    assert steps == 16
    assert len(rig.shard.offsets) == 500


def test_shard_unloaded_while_loading_stays_unloaded() -> None:
    rig = Rig()
    for _ in range(12):
        rig.commit(offsets={("orders", p): 1 for p in range(500)})
    rig.runtime.unload(PARTITION)
    rig.runtime.load(PARTITION, 10)
    rig.runtime.load_step()
    rig.runtime.unload(PARTITION, 11)
    rig.runtime.load_all()
    assert rig.runtime.state(PARTITION) is None


def test_late_calls_of_an_older_epoch_change_nothing() -> None:
    """The leader epoch guards against duplicate and reordered calls."""
    rig = Rig()
    rig.stable_group()
    shard = rig.shard
    rig.runtime.unload(PARTITION, rig.epoch - 1)
    rig.runtime.load(PARTITION, rig.epoch)
    rig.runtime.load(PARTITION, rig.epoch - 1)
    assert rig.shard is shard
    rig.runtime.unload(PARTITION, rig.epoch)
    assert rig.runtime.state(PARTITION) is None


def test_newer_epoch_reads_the_log_again() -> None:
    rig = Rig()
    parked = rig.join()
    rig.runtime.load(PARTITION, rig.epoch + 1)
    assert code(parked) == NOT_COORDINATOR
    rig.runtime.load_all()
    assert rig.state() is GroupState.EMPTY


def test_last_record_of_a_key_wins_in_any_order() -> None:
    """A tombstone before a newer record and after it, in a log that is not compacted."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.delete_group()
    rig.commit(offsets={("orders", 0): 2})
    rig.commit(offsets={("orders", 0): 3}, group_id="gone")
    rig.delete_group("gone")
    rig.restart()
    assert rig.offset() == 2
    assert sorted(rig.shard.groups) == ["g"]


def test_compacted_log_loads_into_the_same_state() -> None:
    rig = Rig()
    members, generation = rig.stable_group()
    for offset in range(5):
        rig.commit(members[0], generation, {("orders", 0): offset})
    records = rig.log.records[PARTITION]
    last = {record.key: i for i, record in enumerate(records)}
    rig.log.records[PARTITION] = [record for i, record in enumerate(records) if last[record.key] == i]
    rig.log.high_watermarks[PARTITION] = len(rig.log.records[PARTITION])
    rig.restart()
    assert (rig.offset(), list(rig.group().members)) == (4, members)


def test_records_of_unknown_kinds_are_skipped() -> None:
    """A newer broker may have written them."""
    rig = Rig()
    rig.commit()
    rig.log.records[PARTITION].insert(0, CoordinatorRecord(struct.pack(">h", 77) + b"whatever", b"x"))
    rig.log.high_watermarks[PARTITION] += 1
    rig.restart()
    assert rig.offset() == 5


def test_records_above_the_high_watermark_are_loaded_but_not_visible() -> None:
    """A shard loads up to the log end, so a new leader misses nothing that was acknowledged."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.log.commits_at_once = False
    rig.commit(offsets={("orders", 0): 2})
    rig.restart()
    assert rig.offset() == 1
    assert rig.newest().offset == 2  # type: ignore[union-attr]
    rig.commit_log()
    assert rig.offset() == 2


def test_shard_with_an_unreadable_log_is_not_served() -> None:
    """The broker answers NOT_COORDINATOR for it."""
    rig = Rig()
    rig.commit()
    rig.log.records[PARTITION].append(CoordinatorRecord(struct.pack(">h", 1) + b"\x00\x09", b"x"))
    rig.restart()
    assert rig.runtime.state(PARTITION) is ShardState.FAILED
    assert code(rig.commit()) == NOT_COORDINATOR
    rig.log.records[PARTITION].pop()
    rig.load()
    assert rig.offset() == 5


def test_shard_hosted_elsewhere_is_not_served() -> None:
    rig = Rig()
    rig.runtime.unload(PARTITION)
    assert code(rig.join()) == NOT_COORDINATOR
    assert code(rig.join("somebody")) == NOT_COORDINATOR


def test_group_from_version_0_metadata_uses_the_session_timeout_for_rebalances() -> None:
    """Records of old brokers have no rebalance timeout and no state timestamp."""
    from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata

    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        members=[
            MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/h",
                session_timeout=7_000,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )
    rig = Rig()
    key = GroupMetadataKey(group="old").encode_versioned(2)
    rig.log.append(PARTITION, [CoordinatorRecord(key, value.encode_versioned(0))], 0)
    rig.restart()
    group = rig.group("old")
    assert (group.generation, group.rebalance_timeout_ms, group.state_timestamp_ms) == (4, 7_000, -1)
    assert code(rig.heartbeat("m", 4, group_id="old")) == 0
    assert code(rig.heartbeat("x", 4, group_id="old")) == UnknownMemberIdError.code
